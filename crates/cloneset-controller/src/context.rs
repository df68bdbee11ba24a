//! What reconciliations share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use podward_api::CloneSet;
use podward_api::clone_set::CloneSetStatus;
use podward_core::cloneset::State;
use podward_kube_util::Events;
use podward_runtime::progress::Progress;
use podward_runtime::retry::{delay_after, jittered};
use podward_runtime::telemetry::traces::Spans;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::cache::OwnedCache;
use crate::errors::SetError;
use crate::failed_steps::ReportedFailures;
use crate::foreign_names::ForeignNames;
use crate::metrics::Metrics;
use crate::own_deletions::OwnDeletions;
use crate::own_requests::HeldDeletions;
use crate::pod::Pod;

/// The delay after a write that lost against another writer. The watch usually delivers the other write sooner.
const OUTDATED_DELAY: Duration = Duration::from_millis(250);
/// The delay after a request that RBAC or an admission policy refused.
const REFUSED_DELAY: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// What reconciliations share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) pods: Arc<OwnedCache<Pod>>,
    pub(crate) revisions: Arc<OwnedCache<ControllerRevision>>,
    pub(crate) claims: Arc<OwnedCache<PersistentVolumeClaim>>,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) progress: Progress,
    pub(crate) spans: Spans,
    /// The name of the user that this process is, once it was needed.
    pub(crate) user: OnceCell<String>,
    /// Cancelled when this replica does not lead any more: nothing more of a plan is begun.
    pub(crate) stop: CancellationToken,
    /// What is remembered of each set, by its UID.
    pub(crate) memory: Mutex<HashMap<String, SetMemory>>,
}

/// What is remembered of a set. Nothing of it is needed after a restart.
#[derive(Debug, Default)]
pub(crate) struct SetMemory {
    /// The status as it was written last, and when.
    pub(crate) status: Option<(CloneSetStatus, Instant)>,
    /// The status that followed from the last plan. It may not be written yet.
    pub(crate) latest_status: Option<CloneSetStatus>,
    /// The number of failures in a row.
    pub(crate) failures: u32,
    /// True if the last failure was not the only one, and another writer had overtaken another step.
    pub(crate) overtaken: bool,
    /// The last failure that was reported in an event.
    pub(crate) reported: Option<String>,
    /// The failures of steps that were reported in events.
    pub(crate) failed_steps: ReportedFailures,
    /// The number of pods that were missing and could not be created yet.
    pub(crate) creations_held: u32,
    /// The pods that the set has deleted, and whose claims are still there.
    pub(crate) own_deletions: OwnDeletions,
    /// The pods whose deletion Podward has held in the last 10 s, and that the watch has not delivered since.
    pub(crate) held: HeldDeletions,
    /// The identities with claims that new pods cannot get, because pods of others have their names.
    pub(crate) foreign_names: ForeignNames,
    /// The number of pods that wait longer for a hook than its deadline.
    past_deadline: usize,
    /// When pods got the state that they have, by their UIDs: more exact than what is stored. Only states that end.
    since: HashMap<String, Timestamp>,
}

impl Context {
    /// Returns the status of a set as it was written last, and when.
    pub(crate) fn written_status(&self, set: &str) -> Option<(CloneSetStatus, Instant)> {
        self.memory.lock().get(set)?.status.clone()
    }

    /// Returns the status of a set that followed from the last plan, or as the watch has delivered it. The watch may be
    /// behind, and a status may not be written yet.
    pub(crate) fn latest_status(&self, set: &CloneSet) -> CloneSetStatus {
        let latest = self.remember(&set.uid().unwrap_or_default(), |memory| memory.latest_status.clone());
        latest.or_else(|| set.status.clone()).unwrap_or_default()
    }

    /// Remembers the state that a pod of a set has from now on; `None` if it is gone. Returns since when it had the one
    /// before, if that is known.
    pub(crate) fn moved(
        &self,
        set: &str,
        pod: &str,
        state: Option<State>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.remember(set, |memory| match state {
            Some(State::Normal) | None => memory.since.remove(pod),
            Some(_) => memory.since.insert(pod.to_owned(), now),
        })
    }

    /// Forgets the pods of a set that do not exist any more.
    pub(crate) fn retain_pods(&self, set: &str, pods: &[Arc<Pod>]) {
        self.remember(set, |memory| {
            if memory.since.len() > pods.len() {
                let uids: HashSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
                memory.since.retain(|uid, _| uids.contains(&**uid));
            }
        });
    }

    /// Changes what is remembered of a set.
    pub(crate) fn remember<T>(&self, set: &str, change: impl FnOnce(&mut SetMemory) -> T) -> T {
        change(self.memory.lock().entry(set.to_owned()).or_default())
    }

    /// Forgets all sets but some.
    pub(crate) fn retain(&self, stays: impl Fn(&str) -> bool) {
        let mut memory = self.memory.lock();
        memory.retain(|set, _| stays(set));
        let late: usize = memory.values().map(|it| it.past_deadline).sum();
        self.metrics.past_deadline.set(i64::try_from(late).unwrap_or(i64::MAX));
    }

    /// Forgets a set that does not exist any more.
    pub(crate) fn forget(&self, set: &str) {
        self.retain(|other| other != set);
    }

    /// Counts the pods of a set that wait longer for a hook than its deadline.
    pub(crate) fn past_deadline(&self, set: &str, pods: usize) {
        if self.remember(set, |memory| std::mem::replace(&mut memory.past_deadline, pods)) != pods {
            self.retain(|_| true);
        }
    }

    /// Counts a failure of a set, unless it is repeated soon, and returns the delay until the next attempt. Delays have
    /// jitter.
    pub(crate) fn failed(&self, set: &str, error: &SetError) -> Duration {
        let overtaken = self.remember(set, |memory| std::mem::take(&mut memory.overtaken));
        // What was refused is refused again whenever it is repeated, so the step that was overtaken does not wait for
        // it. An API server that does not serve, or has too much to do, gets its time.
        if error.is_overtaken() || (overtaken && error.is_refused()) {
            return delay_after(jittered(OUTDATED_DELAY, OUTDATED_DELAY), 1);
        }
        let failures = self.remember(set, |memory| {
            memory.failures = memory.failures.saturating_add(1);
            memory.failures
        });
        match error.is_refused() {
            true => delay_after(jittered(FIRST_DELAY, REFUSED_DELAY), failures),
            false => delay_after(jittered(FIRST_DELAY, LONGEST_DELAY), failures),
        }
    }

    /// Ends a row of failures.
    pub(crate) fn succeeded(&self, set: &str) {
        self.remember(set, |memory| {
            (memory.failures, memory.reported, memory.failed_steps) = (0, None, ReportedFailures::default());
        });
    }
}
