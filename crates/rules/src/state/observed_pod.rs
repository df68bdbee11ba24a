//! A pod of a namespace with rules.

use std::sync::Arc;

use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::rules::{CheckRequest, RulePod, SkippedRules};
use podward_kube_util::CachedPod;

/// A pod, and what rules need to know of it.
#[derive(Clone, Debug)]
pub(crate) struct ObservedPod {
    pub(crate) pod: Arc<CachedPod>,
    /// Sorted.
    pub(crate) requests: Vec<CheckRequest>,
    /// Parsed once for this version of the pod.
    pub(crate) skipped: Arc<SkippedRules>,
    /// The names of the rule sets that select the pod, sorted.
    pub(crate) sets: Vec<String>,
    /// True if its workload ends, see [`ends_workload`]. Read once for this version of the pod.
    pub(crate) ends_workload: bool,
}

/// True if the deletion request of the pod means that its workload ends, so that no other pod replaces it.
pub(crate) fn ends_workload(pod: &CachedPod) -> bool {
    pod.deletion_request().is_some_and(|request| request.ends_workload)
}

impl ObservedPod {
    /// Returns the pod in the form of the core.
    pub(crate) fn subject(&self) -> RulePod<'_> {
        self.pod.subject(&self.skipped)
    }

    /// True if the pod counts for budgets: it has opted in, is not terminating and has not ended.
    pub(crate) fn is_active(&self) -> bool {
        let view = self.pod.view();
        !view.terminating && !self.pod.is_terminal() && view.is_controlled()
    }

    /// True if the pod has opted in and is being deleted. While it is, and until its replacement exists, its owner may
    /// have a pod less than it wants.
    pub(crate) fn is_terminating(&self) -> bool {
        let view = self.pod.view();
        view.terminating && view.is_controlled()
    }

    /// True if replacing this version of the pod with `after` may change a decision.
    pub(crate) fn differs(&self, after: &ObservedPod) -> bool {
        let is_available = |observed: &ObservedPod| observed.pod.labels().contains_key(SERVICE_AVAILABLE);
        let may_be_deleted = |observed: &ObservedPod| observed.subject().may_be_deleted();
        let is_selected = !self.sets.is_empty() || !after.sets.is_empty();
        let has_requests = !after.requests.is_empty();
        is_selected
            && (self.requests != after.requests
                || self.sets != after.sets
                || self.is_active() != after.is_active()
                || self.is_terminating() != after.is_terminating()
                || self.pod.is_terminal() != after.pod.is_terminal()
                || is_available(self) != is_available(after)
                || self.ends_workload != after.ends_workload
                || (after.ends_workload && may_be_deleted(self) != may_be_deleted(after))
                || (has_requests && self.pod.labels() != after.pod.labels())
                || (has_requests && self.skipped != after.skipped))
    }
}
