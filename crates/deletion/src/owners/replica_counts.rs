//! The replica counts on which the leader bases its decisions, per owner.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use parking_lot::Mutex;
use podward_core::deletion::{Ruling, WorkloadRulings};
use podward_kube_util::{ApiError, CachedPod};

use super::pod_counts;
use crate::read_time::ReadTime;
use crate::watches::WaitingPods;

/// One entry per owner. The lock of an entry is held from the count to the decision, so that two pods cannot both be
/// the last one in excess.
#[derive(Default)]
pub(crate) struct ReplicaCounts {
    owners: Mutex<HashMap<String, Arc<tokio::sync::Mutex<PerOwnerCount>>>>,
}

#[derive(Default)]
struct PerOwnerCount {
    workload: WorkloadRulings,
    count: Option<CountedRulings>,
    /// The count directly before deletes.
    final_count: Option<CountedRulings>,
}

struct CountedRulings {
    time: ReadTime,
    /// The result of [`WaitingPods::version`]. While it is unchanged, the owner wants the same number of pods.
    version: Option<u64>,
    rulings: BTreeMap<String, Ruling>,
}

impl ReplicaCounts {
    /// Decides whether `pod` may leave service or, if it has `passed` its pre-check, may stay out of service. `waiting`
    /// reports the pod again when its owner changes.
    pub(crate) async fn rule(
        &self,
        client: &Client,
        waiting: &WaitingPods,
        pod: &CachedPod,
        owner: &OwnerReference,
        passed: bool,
    ) -> Result<Ruling, ApiError> {
        let asked = Instant::now();
        let entry = self.entry(&owner.uid);
        let mut entry = entry.lock().await;
        let version = waiting.version(&owner.uid);
        let is_valid = |count: &&CountedRulings| {
            let is_watched = passed && version.is_some();
            count.version == version && (is_watched || count.time.is_recent(asked))
        };
        let known = entry.count.as_ref().filter(is_valid).and_then(|count| count.rulings.get(pod.uid()));
        if let Some(ruling) = known.cloned() {
            // The watch reports every pod that waits, not only the pod that started the watch.
            if let Some(count) = entry.count.as_ref().filter(|_| ruling == Ruling::Go) {
                waiting.join_owner_wait(&pod.key(), &owner.uid, count.version);
            }
            return Ok(ruling);
        }
        let began = Instant::now();
        let counts = pod_counts::read(client, pod, owner).await?;
        let time = ReadTime::since(began);
        let rulings = entry.workload.rule(&counts.workload, &counts.members);
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        let started = waiting.wait_for_owner(&pod.key(), owner, &counts.workload);
        entry.count = Some(CountedRulings { time, version: started.or(version), rulings });
        Ok(ruling)
    }

    /// Decides directly before the delete whether `pod`, which has its permission, is deleted.
    pub(crate) async fn final_ruling(
        &self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Ruling, ApiError> {
        let asked = Instant::now();
        let entry = self.entry(&owner.uid);
        let mut entry = entry.lock().await;
        let known = entry.final_count.as_ref().filter(|count| count.time.is_current(asked));
        if let Some(ruling) = known.and_then(|count| count.rulings.get(pod.uid())) {
            return Ok(ruling.clone());
        }
        let began = Instant::now();
        let counts = pod_counts::read(client, pod, owner).await?;
        let time = ReadTime::since(began);
        let rulings = entry.workload.final_ruling(&counts.workload, &counts.members);
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        entry.final_count = Some(CountedRulings { time, version: None, rulings });
        Ok(ruling)
    }

    /// Discards the last count of `owner`, because its pods have changed in a way that the count does not include.
    pub(crate) async fn recount(&self, owner: &OwnerReference) {
        self.entry(&owner.uid).lock().await.final_count = None;
    }

    /// Discards the entries of owners that have no pods.
    pub(crate) fn retain(&self, has_pods: impl Fn(&str) -> bool) {
        self.owners.lock().retain(|uid, _| has_pods(uid));
    }

    fn entry(&self, uid: &str) -> Arc<tokio::sync::Mutex<PerOwnerCount>> {
        self.owners.lock().entry(uid.to_owned()).or_default().clone()
    }
}
