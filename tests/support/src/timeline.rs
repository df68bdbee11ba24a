//! A record of every version of every pod, and what must hold for all of them.
//!
//! - [`Version`] is what is kept of a version.
//! - [`invariants`] holds the protocol's safety properties against a pod's history.
//! - [`OperationRecord`] tells when an operation reached what, and [`PodReport`] all that happened to a pod.
//! - [`render`] prints that for people; everything serialises for machines.

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
    invariants::Violation,
    operations::OperationRecord,
    report::{PodEvent, PodReport, Report},
    version::Version,
};
use crate::{
    feed::{Seen, Watching, observe},
    wait::{WAIT, within},
};

/// What is known of one pod.
#[derive(Clone, Debug)]
pub struct History {
    /// The pod's name.
    pub name: String,
    /// Its UID: a pod that is made anew under the same name has a history of its own.
    pub uid: String,
    /// Every version that was seen, in order.
    pub versions: Vec<Version>,
    /// Which of them may not be the next after the one before: the watch was interrupted between them.
    pub after_gaps: BTreeSet<usize>,
    /// When the object was gone, in milliseconds since the timeline started.
    pub gone_ms: Option<f64>,
}

#[derive(Debug, Default)]
struct Record {
    by_uid: BTreeMap<String, History>,
    gaps: usize,
}

/// Records until it is dropped.
#[derive(Debug)]
pub struct Timeline {
    record: watch::Receiver<Record>,
    api: Api<Pod>,
    selector: String,
    _watching: Watching,
}

impl Timeline {
    /// Records the pods in `namespace` that match the label selector `selector`. Time is counted from now on.
    ///
    /// # Errors
    /// When the pods can't be watched.
    pub async fn start(client: Client, namespace: &str, selector: &str) -> Result<Self> {
        let (writer, record) = watch::channel(Record::default());
        let start = Instant::now();
        let api = Api::namespaced(client.clone(), namespace);
        let watching = observe(client, namespace, selector, move |seen| {
            writer.send_modify(|record| record.note(&seen, start.elapsed()));
        });
        Ok(Self { _watching: watching.await?, record, api, selector: selector.to_owned() })
    }

    /// All that was seen so far, in the order of the pods' names.
    #[must_use]
    pub fn histories(&self) -> Vec<History> {
        let mut histories: Vec<History> = self.record.borrow().by_uid.values().cloned().collect();
        histories.sort_by(|a, b| a.name.cmp(&b.name));
        histories
    }

    /// What happened, and whether it was right. With `at_rest` it also counts as wrong if, of the protocol's labels, a pod has
    /// anything but `service-available` in its last version.
    #[must_use]
    pub fn report(&self, at_rest: bool) -> Report {
        self.report_with(at_rest, true)
    }

    /// How often the watch had to list anew, so that versions may be missing.
    #[must_use]
    pub fn gaps(&self) -> usize {
        self.record.borrow().gaps
    }

    fn report_with(&self, at_rest: bool, without_gaps: bool) -> Report {
        let mut report = Report::of(&self.histories(), at_rest);
        let gaps = self.gaps();
        if gaps > 0 && without_gaps {
            report.violations.push(Violation::gaps(gaps));
        }
        report
    }

    /// Waits until the record has reached what is stored at this moment: a watch comes a little behind.
    ///
    /// # Errors
    /// When the pods can't be listed, or it takes longer than [`WAIT`].
    pub async fn catch_up(&self) -> Result<()> {
        let stored =
            self.api.list(&ListParams::default().labels(&self.selector)).await.context("list the pods")?;
        let goal: Vec<(String, String)> =
            stored.items.iter().filter_map(|pod| Some((pod.uid()?, pod.resource_version()?))).collect();
        self.until("the timeline to reach the present", |record| {
            goal.iter().all(|(uid, version)| {
                record.by_uid.get(uid).is_some_and(|history| history.has_reached(version))
            })
        })
        .await
    }

    /// Waits until nothing is left on any pod, or until [`WAIT`]: what is not at rest then, a report names.
    pub async fn come_to_rest(&self) {
        let is_clean = |history: &History| invariants::check_at_rest(history).is_empty();
        let rest = self.until("pods at rest", |record| record.by_uid.values().all(is_clean));
        drop(rest.await);
    }

    /// The report as an error if anything was wrong: the text has the timeline of every pod that is concerned. With `at_rest`
    /// the pods get until [`WAIT`] to come to rest, since the last steps of an operation follow the end that its operator sees.
    ///
    /// # Errors
    /// When an invariant failed.
    pub async fn verify(&self, at_rest: bool) -> Result<Report> {
        self.verify_with(at_rest, true).await
    }

    /// [`verify`](Self::verify); with `without_gaps` the record has to be whole, which it can't be where the API server goes away.
    ///
    /// # Errors
    /// When an invariant failed.
    pub async fn verify_with(&self, at_rest: bool, without_gaps: bool) -> Result<Report> {
        self.catch_up().await?;
        if at_rest {
            self.come_to_rest().await;
        }
        let report = self.report_with(at_rest, without_gaps);
        anyhow::ensure!(report.violations.is_empty(), "{}", render::violations(&report));
        Ok(report)
    }

    async fn until(&self, what: &str, mut test: impl FnMut(&Record) -> bool) -> Result<()> {
        let mut record = self.record.clone();
        let reached =
            async { record.wait_for(|record| test(record)).await.map(drop).context("the watch has ended") };
        within(WAIT, || what.to_owned(), reached).await
    }
}

impl History {
    /// Versions of one pod come in order, and every version that is stored comes: the one that is looked for, or it is gone.
    fn has_reached(&self, version: &str) -> bool {
        self.gone_ms.is_some() || self.versions.iter().rev().any(|seen| seen.resource_version == version)
    }
}

impl Record {
    fn note(&mut self, seen: &Seen, at: Duration) {
        let at_ms = milliseconds(at);
        let (pod, gone_ms) = match seen {
            Seen::Version(pod) => (pod, None),
            Seen::Gone(pod) => (pod, Some(at_ms)),
            Seen::Gap => {
                self.gaps += 1;
                for history in self.by_uid.values_mut() {
                    history.after_gaps.insert(history.versions.len());
                }
                return;
            }
            Seen::Left(uids) => {
                let is_gone =
                    |history: &&mut History| history.gone_ms.is_none() && !uids.contains(&history.uid);
                self.by_uid.values_mut().filter(is_gone).for_each(|history| history.gone_ms = Some(at_ms));
                return;
            }
        };
        let uid = pod.uid().unwrap_or_default();
        let history = self.by_uid.entry(uid.clone()).or_insert_with(|| History {
            name: pod.name_any(),
            uid,
            versions: Vec::new(),
            after_gaps: BTreeSet::new(),
            gone_ms: None,
        });
        history.gone_ms = gone_ms;
        if gone_ms.is_none() {
            history.versions.push(Version::of(pod, at_ms));
        }
    }
}

/// Milliseconds with two decimals: finer than a watch event's way to us is exact.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}
