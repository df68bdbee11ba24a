//! Lifecycle hooks of a CloneSet.

use std::collections::{BTreeMap, BTreeSet};

use super::pod::SetPod;

/// The lifecycle hooks of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    /// Confirms new pods.
    pub pre_normal: Option<Hook>,
    /// Releases pods before an in-place update, and confirms them after it.
    pub in_place_update: Option<Hook>,
    /// Releases pods before their deletion.
    pub pre_delete: Option<Hook>,
}

/// The markers of a hook. An operator puts them on a pod that is in use, and takes them from it when it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hook {
    /// `labelsHandler`
    pub labels: BTreeMap<String, String>,
    /// `finalizersHandler`
    pub finalizers: BTreeSet<String>,
    /// `markPodNotReady`: the pod is not Ready from when the hook is asked until it has confirmed the pod, or the pod is
    /// gone.
    pub mark_not_ready: bool,
}

impl Hook {
    /// Returns true if it has a marker.
    #[must_use]
    pub fn has_markers(&self) -> bool {
        !self.labels.is_empty() || !self.finalizers.is_empty()
    }

    /// Returns true if any marker is left on the pod: it is in use.
    #[must_use]
    pub fn holds(&self, pod: &SetPod) -> bool {
        self.labels.iter().any(|(key, value)| pod.labels.get(key) == Some(value))
            || self.finalizers.iter().any(|it| pod.finalizers.contains(it))
    }

    /// Returns true if the pod has all markers. A hook without markers confirms each pod.
    #[must_use]
    pub fn confirms(&self, pod: &SetPod) -> bool {
        self.labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
            && self.finalizers.iter().all(|it| pod.finalizers.contains(it))
    }
}

/// Returns true if a marker of the hook is left. A hook that does not exist holds nothing.
pub(super) fn holds(hook: Option<&Hook>, pod: &SetPod) -> bool {
    hook.is_some_and(|hook| hook.holds(pod))
}

/// Returns true if there is no hook, or if it confirms the pod.
pub(super) fn is_confirmed(hook: Option<&Hook>, pod: &SetPod) -> bool {
    hook.is_none_or(|hook| hook.confirms(pod))
}
