//! Lifecycle hooks of a CloneSet.

use std::collections::{BTreeMap, BTreeSet};

use super::pod::SetPod;
use super::put_back::PutBack;
use super::state::State;

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
    /// True if the pod is not Ready until the hook has confirmed it. Without an effect on `preDelete`.
    pub hold_traffic: bool,
    /// True if the pod goes on without the hook when its deadline has passed.
    pub proceeds: bool,
}

impl Hook {
    /// Returns true if it has a marker.
    #[must_use]
    pub fn has_markers(&self) -> bool {
        !self.labels.is_empty() || !self.finalizers.is_empty()
    }

    /// Returns the markers that the pod has, or those that it does not have, labels as `key=value`.
    pub(super) fn markers(&self, pod: &SetPod, present: bool) -> Vec<String> {
        let labels =
            self.labels.iter().filter(|(key, value)| (pod.labels.get(*key) == Some(value)) == present);
        let finalizers = self.finalizers.iter().filter(|it| pod.finalizers.contains(it) == present);
        labels.map(|(key, value)| format!("{key}={value}")).chain(finalizers.cloned()).collect()
    }

    /// Returns the markers that a pod with these labels and finalizers does not have.
    #[must_use]
    pub fn missing(&self, labels: &BTreeMap<String, String>, finalizers: &[String]) -> PutBack {
        let missing = self.labels.iter().filter(|(key, value)| labels.get(*key) != Some(value));
        let labels = missing.map(|(key, value)| (key.clone(), value.clone())).collect();
        let finalizers = self.finalizers.iter().filter(|it| !finalizers.contains(it)).cloned().collect();
        PutBack { labels, finalizers }
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

/// Returns true if a pod that waits for the hook in `state` has to go on waiting for its release. A hook that does not exist
/// holds nothing.
pub(super) fn holds(hook: Option<&Hook>, pod: &SetPod, state: State) -> bool {
    hook.is_some_and(|hook| hook.holds(pod) && !goes_on(hook, pod, state))
}

/// Returns true if there is no hook, or if a pod that waits for it in `state` is confirmed.
pub(super) fn is_confirmed(hook: Option<&Hook>, pod: &SetPod, state: State) -> bool {
    hook.is_none_or(|hook| hook.confirms(pod) || goes_on(hook, pod, state))
}

/// Returns true if the deadline of the hook in `state` has passed, and the pod goes on.
pub(super) fn goes_on(hook: &Hook, pod: &SetPod, state: State) -> bool {
    hook.proceeds && pod.past_deadline && pod.state == Some(state)
}
