//! The owners whose pods have just gone.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::observed_pod::ObservedPod;

/// A decision that depends on missing replicas is made again after this time.
pub(crate) const OWNER_RECHECK_DELAY: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// The owners of selected pods that have gone. A StatefulSet creates a pod only after the previous one is gone. In between
/// it may have none, so that no pod names it. It counts for [`OWNER_RECHECK_DELAY`] after the first decision without the
/// pod. It must not count for longer: its next pod may not be opted in.
#[derive(Debug, Default)]
pub(crate) struct GoneOwners {
    /// By UID.
    owners: HashMap<String, GoneOwner>,
}

/// The owner of pods that are gone.
#[derive(Clone, Debug)]
pub(crate) struct GoneOwner {
    pub(crate) owner: OwnerReference,
    /// The rule sets that selected its pods.
    pub(crate) sets: BTreeSet<String>,
    /// The time of the first decision without the pod; `None` before it.
    since: Option<Instant>,
}

impl GoneOwners {
    /// Adds the owner of a pod that is gone.
    pub(crate) fn add(&mut self, pod: &ObservedPod) {
        let counted = pod.is_active() || pod.is_terminating();
        let Some(owner) = pod.pod.controller().filter(|_| counted && !pod.sets.is_empty()) else { return };
        let new = || GoneOwner { owner: owner.clone(), sets: BTreeSet::new(), since: None };
        let gone = self.owners.entry(owner.uid.clone()).or_insert_with(new);
        gone.sets.extend(pod.sets.iter().cloned());
        gone.since = None;
    }

    /// Returns the owners that count in a decision at the time `now`, and removes the others.
    pub(crate) fn counting(&mut self, now: Instant) -> impl Iterator<Item = &GoneOwner> {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= OWNER_RECHECK_DELAY;
        self.owners.retain(|_, gone| !is_over(*gone.since.get_or_insert(now)));
        self.owners.values()
    }
}
