//! The deletions that a set has requested, and that Podward holds.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use podward_core::Operations;
use podward_core::keys::{DELETE_OPERATION, Stage};

use crate::observe::Observed;
use crate::own_deletions::requester;
use crate::pod::Pod;

/// The pause before a deletion that Podward holds is tried again. Podward deletes the pod by itself.
pub(crate) const HELD_DELAY: Duration = Duration::from_secs(10);

/// Pods whose deletion Podward has held when the set asked for it, by their UIDs: their versions then, and until when
/// that counts. The watch delivers later what was recorded.
#[derive(Debug, Default)]
pub(crate) struct HeldDeletions {
    pods: HashMap<String, (Option<String>, Timestamp)>,
}

impl HeldDeletions {
    /// Adds a pod. If nothing was recorded on it, its deletion is tried again.
    pub(crate) fn add(&mut self, pod: &Pod, now: Timestamp) {
        let until = now.checked_add(HELD_DELAY).unwrap_or(now);
        self.pods.insert(pod.uid().unwrap_or_default(), (pod.resource_version(), until));
    }

    /// Forgets a pod: its deletion was cancelled.
    pub(crate) fn remove(&mut self, pod: &Pod) {
        self.pods.remove(&pod.uid().unwrap_or_default());
    }

    /// Completes what is seen of the pods of a set with the requests of the set, which is `user`. Forgets pods that were
    /// changed since.
    pub(crate) fn observe(&mut self, observed: &mut Observed, user: Option<&str>, now: Timestamp) {
        let mut left = HashMap::new();
        for (observed, seen) in observed.pods.iter_mut().zip(&mut observed.seen) {
            let pod = &observed.pod;
            let uid = pod.uid().unwrap_or_default();
            let is_own = user.is_some() && requester(pod).as_deref() == user;
            seen.requested_by_set = is_own && !has_permission(pod);
            let held = self.pods.remove(&uid);
            if let Some((version, until)) = held
                && version == pod.resource_version()
                && until > now
            {
                seen.requested_by_set |= !seen.deletion_requested;
                seen.deletion_requested = true;
                observed.wake = observed.wake.into_iter().chain([until]).min();
                left.insert(uid, (version, until));
            }
        }
        self.pods = left;
    }
}

/// Returns true if Podward may delete the pod: its request cannot be withdrawn any more.
fn has_permission(pod: &Pod) -> bool {
    let operations = Operations::parse(pod.labels());
    operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(Stage::Operate))
}
