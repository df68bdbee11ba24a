//! The replica counts on which the leader bases its decisions, per owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use parking_lot::Mutex;
use podward_core::deletion::{Ruling, WorkloadRulings};
use podward_kube_util::{ApiError, CachedPod};

use super::pod_counts::{self, OwnerCounts};
use super::pod_list::ListedPart;
use crate::last_timeout::LastTimeout;
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
    last_timeout: LastTimeout,
}

impl PerOwnerCount {
    /// Reads `owner` and its pods, for `pod`, which has asked at `asked`.
    async fn read(
        &mut self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
        asked: Instant,
    ) -> Result<OwnerCounts, ApiError> {
        self.last_timeout
            .read(asked, async || pod_counts::read(client, pod, owner, ListedPart::Metadata).await)
            .await
    }
}

struct CountedRulings {
    time: ReadTime,
    /// The result of [`WaitingPods::version`]. While it is unchanged, the owner wants the same number of pods.
    version: Option<u64>,
    rulings: BTreeMap<String, Ruling>,
    /// The UIDs of the counted pods.
    members: BTreeSet<String>,
    /// [`OwnerCounts::version`].
    listed: Option<u64>,
}

impl CountedRulings {
    fn new(
        began: Instant,
        version: Option<u64>,
        rulings: BTreeMap<String, Ruling>,
        counts: OwnerCounts,
    ) -> Self {
        let members = counts.members.into_iter().map(|member| member.uid).collect();
        CountedRulings { time: ReadTime::since(began), version, rulings, members, listed: counts.version }
    }

    /// Returns the decision about `pod`. `None` if its request is newer than the count.
    fn ruling(&self, pod: &CachedPod) -> Option<Ruling> {
        self.rulings.get(pod.uid()).or_else(|| self.is_gone(pod).then_some(&Ruling::Go)).cloned()
    }

    /// Returns true if `pod` was gone or terminating at the count, also if its owner was.
    fn is_gone(&self, pod: &CachedPod) -> bool {
        let is_listed = |listed| pod.version_number().is_some_and(|version| version <= listed);
        !self.members.contains(pod.uid()) && self.listed.is_none_or(is_listed)
    }
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
        let known = entry.count.as_ref().filter(is_valid).and_then(|count| count.ruling(pod));
        if let Some(ruling) = known {
            // The watch reports every pod that waits, not only the pod that started the watch.
            if let Some(count) = entry.count.as_ref().filter(|_| ruling == Ruling::Go) {
                waiting.join_owner_wait(&pod.key(), &owner.uid, count.version);
            }
            return Ok(ruling);
        }
        let began = Instant::now();
        let counts = entry.read(client, pod, owner, asked).await?;
        let rulings = entry.workload.rule(&counts.workload, &counts.members);
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        let started = waiting.wait_for_owner(&pod.key(), owner, &counts.workload);
        entry.count = Some(CountedRulings::new(began, started.or(version), rulings, counts));
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
        if let Some(ruling) = known.and_then(|count| count.ruling(pod)) {
            return Ok(ruling);
        }
        let began = Instant::now();
        let counts = entry.read(client, pod, owner, asked).await?;
        let rulings = entry.workload.final_ruling(&counts.workload, &counts.members);
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        entry.final_count = Some(CountedRulings::new(began, None, rulings, counts));
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
