//! The deletions that a set has requested, and that Podward holds.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::observe::Observed;
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

    /// Completes what is seen of the pods of a set, and forgets pods that were changed since.
    pub(crate) fn observe(&mut self, observed: &mut Observed, now: Timestamp) {
        let mut left = HashMap::new();
        for (observed, seen) in observed.pods.iter_mut().zip(&mut observed.seen) {
            let uid = observed.pod.uid().unwrap_or_default();
            if let Some((version, until)) = self.pods.remove(&uid)
                && version == observed.pod.resource_version()
                && until > now
            {
                seen.deletion_sent = true;
                observed.wake = observed.wake.into_iter().chain([until]).min();
                left.insert(uid, (version, until));
            }
        }
        self.pods = left;
    }
}
