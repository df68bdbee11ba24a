//! Records every version of every pod and checks the invariants on all of them.
//!
//! - [`PodVersion`] is the recorded part of a version.
//! - [`invariants`] checks the protocol's safety properties on a pod's history.
//! - [`OperationRecord`] contains the times of an operation, and [`PodReport`] everything that happened to a pod.
//! - [`render`] prints the report. All types can be serialised.

mod history;
pub mod invariants;
mod operations;
pub mod render;
mod report;
mod version;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::sync::watch;

pub use self::{
    history::PodHistory,
    invariants::Violation,
    operations::OperationRecord,
    report::{PodEvent, PodReport, TimelineReport},
    version::PodVersion,
};
use crate::{
    feed::{PodFeedEvent, WatchTask, observe},
    wait::{WAIT, within},
};

#[derive(Debug, Default)]
struct PodHistories {
    by_uid: BTreeMap<String, PodHistory>,
    gaps: usize,
}

/// Records until it is dropped.
#[derive(Debug)]
pub struct Timeline {
    record: watch::Receiver<PodHistories>,
    api: Api<Pod>,
    selector: String,
    _watching: WatchTask,
}

impl Timeline {
    /// Records the pods in `namespace` that match the label selector `selector`. Times are relative to this call.
    ///
    /// # Errors
    /// Fails if the pods cannot be watched.
    pub async fn start(client: Client, namespace: &str, selector: &str) -> Result<Self> {
        let (writer, record) = watch::channel(PodHistories::default());
        let start = Instant::now();
        let api = Api::namespaced(client.clone(), namespace);
        let watching = observe(client, namespace, selector, move |seen| {
            writer.send_modify(|record| record.note(&seen, start.elapsed()));
        });
        Ok(Self { _watching: watching.await?, record, api, selector: selector.to_owned() })
    }

    /// Returns the histories so far, sorted by pod name.
    #[must_use]
    pub fn histories(&self) -> Vec<PodHistory> {
        let mut histories: Vec<PodHistory> = self.record.borrow().by_uid.values().cloned().collect();
        histories.sort_by(|a, b| a.name.cmp(&b.name));
        histories
    }

    /// Returns what happened and all violations. With `at_rest` it is also a violation if the last version of a pod
    /// has a label of the protocol other than `service-available`.
    #[must_use]
    pub fn report(&self, at_rest: bool) -> TimelineReport {
        self.report_with(at_rest, true)
    }

    /// Returns how often the watch listed the pods again, so that versions may be missing.
    #[must_use]
    pub fn gaps(&self) -> usize {
        self.record.borrow().gaps
    }

    fn report_with(&self, at_rest: bool, without_gaps: bool) -> TimelineReport {
        let mut report = TimelineReport::of(&self.histories(), at_rest);
        let gaps = self.gaps();
        if gaps > 0 && without_gaps {
            report.violations.push(Violation::gaps(gaps));
        }
        report
    }

    /// Waits until the record contains what is stored at the time of the call, and the end of the recorded pods that
    /// are gone by then. A watch has a short delay.
    ///
    /// # Errors
    /// Fails if the pods cannot be listed, or it takes longer than [`WAIT`].
    pub async fn catch_up(&self) -> Result<()> {
        let recorded: BTreeSet<String> = self.record.borrow().by_uid.keys().cloned().collect();
        let stored =
            self.api.list(&ListParams::default().labels(&self.selector)).await.context("list the pods")?;
        let goal: BTreeMap<String, String> =
            stored.items.iter().filter_map(|pod| Some((pod.uid()?, pod.resource_version()?))).collect();
        let gone: Vec<&String> = recorded.iter().filter(|uid| !goal.contains_key(*uid)).collect();
        self.until("the timeline to reach the present", |record| {
            let history = |uid: &str| record.by_uid.get(uid);
            goal.iter().all(|(uid, version)| history(uid).is_some_and(|seen| seen.has_reached(version)))
                && gone.iter().all(|uid| history(uid).is_some_and(|seen| seen.gone_ms.is_some()))
        })
        .await
    }

    /// Waits until no pod has a label of an operation, at most for [`WAIT`]. A report names the pods that still have
    /// one.
    pub async fn come_to_rest(&self) {
        let is_clean = |history: &PodHistory| invariants::check_at_rest(history).is_empty();
        let rest = self.until("pods at rest", |record| record.by_uid.values().all(is_clean));
        drop(rest.await);
    }

    /// Returns the report, or an error if there was a violation. The message contains the timelines of the pods. With
    /// `at_rest` the pods get up to [`WAIT`] to finish, because the last steps of an operation follow the end that
    /// its operator sees.
    ///
    /// # Errors
    /// Fails if an invariant failed.
    pub async fn verify(&self, at_rest: bool) -> Result<TimelineReport> {
        self.verify_with(at_rest, true).await
    }

    /// Like [`verify`](Self::verify). With `without_gaps` the record must be complete, which is impossible if the API
    /// server was down.
    ///
    /// # Errors
    /// Fails if an invariant failed.
    pub async fn verify_with(&self, at_rest: bool, without_gaps: bool) -> Result<TimelineReport> {
        self.catch_up().await?;
        if at_rest {
            self.come_to_rest().await;
        }
        let report = self.report_with(at_rest, without_gaps);
        anyhow::ensure!(report.violations.is_empty(), "{}", render::violations(&report));
        Ok(report)
    }

    async fn until(&self, what: &str, mut test: impl FnMut(&PodHistories) -> bool) -> Result<()> {
        let mut record = self.record.clone();
        let reached =
            async { record.wait_for(|record| test(record)).await.map(drop).context("the watch has ended") };
        within(WAIT, || what.to_owned(), reached).await
    }
}

impl PodHistories {
    fn note(&mut self, seen: &PodFeedEvent, at: Duration) {
        let at_ms = milliseconds(at);
        let (pod, gone_ms) = match seen {
            PodFeedEvent::Version(pod) => (pod, None),
            PodFeedEvent::Gone(pod) => (pod, Some(at_ms)),
            PodFeedEvent::Gap => {
                self.gaps += 1;
                for history in self.by_uid.values_mut() {
                    history.after_gaps.insert(history.versions.len());
                }
                return;
            }
            PodFeedEvent::Left(uids) => {
                let is_gone =
                    |history: &&mut PodHistory| history.gone_ms.is_none() && !uids.contains(&history.uid);
                self.by_uid.values_mut().filter(is_gone).for_each(|history| history.gone_ms = Some(at_ms));
                return;
            }
        };
        let uid = pod.uid().unwrap_or_default();
        let history = self.by_uid.entry(uid.clone()).or_insert_with(|| PodHistory {
            name: pod.name_any(),
            uid,
            versions: Vec::new(),
            after_gaps: BTreeSet::new(),
            gone_ms: None,
        });
        history.gone_ms = gone_ms;
        if gone_ms.is_none() {
            history.versions.push(PodVersion::of(pod, at_ms));
        }
    }
}

/// Returns milliseconds with two decimals. The delay of watch events varies by more than that.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}
