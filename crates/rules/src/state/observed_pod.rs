//! A pod of a namespace with rules.

use std::sync::Arc;

use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::rules::CheckRequest;
use podward_kube_util::CachedPod;

/// A pod, and what rules need to know of it.
#[derive(Clone, Debug)]
pub(crate) struct ObservedPod {
    pub(crate) pod: Arc<CachedPod>,
    pub(crate) requests: Vec<CheckRequest>,
    /// The names of the rule sets that select the pod, sorted.
    pub(crate) sets: Vec<String>,
}

impl ObservedPod {
    /// True if the pod counts for budgets: it has opted in, is not terminating and has not ended.
    pub(crate) fn is_active(&self) -> bool {
        let view = self.pod.view();
        !view.terminating && !self.pod.is_terminal() && view.is_controlled()
    }

    /// True if replacing this version of the pod with `after` may change a decision.
    pub(crate) fn differs(&self, after: &ObservedPod) -> bool {
        let is_available = |observed: &ObservedPod| observed.pod.labels().contains_key(SERVICE_AVAILABLE);
        let is_selected = !self.sets.is_empty() || !after.sets.is_empty();
        let has_requests = !after.requests.is_empty();
        is_selected
            && (self.requests != after.requests
                || self.sets != after.sets
                || self.is_active() != after.is_active()
                || is_available(self) != is_available(after)
                || (has_requests && self.pod.labels() != after.pod.labels())
                || (has_requests && self.pod.skipped_rules() != after.pod.skipped_rules()))
    }
}
