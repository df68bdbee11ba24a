//! A delete or an eviction that the API server asks about.

use podward_core::Pod;
use podward_core::deletion::hold::{
    DeletionAttempt, EvictionCaller, EvictionTarget, eviction_target, is_left_to_clone_set,
};
use podward_core::deletion::is_by_workload;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_kube_util::now;
use podward_runtime::admission::{AdmissionRequest, AdmissionUser, DeleteOptions, Preconditions};

use crate::reviewed_object::ReviewedObject;

/// A delete or an eviction of a pod.
#[derive(Clone, Copy)]
pub(super) struct IncomingDeletion<'a> {
    pub(super) kind: DeletionKind,
    /// The whole identity, for the check of its rights.
    pub(super) requester: &'a AdmissionUser<'a>,
    pub(super) user: &'a str,
    pub(super) namespace: &'a str,
    dry_run: bool,
    grace_period_seconds: Option<u32>,
    preconditions: Option<&'a Preconditions>,
}

impl<'a> IncomingDeletion<'a> {
    /// Returns the deletion that `request` is about.
    pub(super) fn new(
        kind: DeletionKind,
        request: &'a AdmissionRequest<'a, ReviewedObject>,
        dry_run: bool,
        options: &'a DeleteOptions,
    ) -> Self {
        Self {
            kind,
            requester: &request.user_info,
            user: &request.user_info.username,
            namespace: &request.namespace,
            dry_run,
            // The API server treats a negative value as 1 (apiserver/pkg/registry/rest/delete.go).
            grace_period_seconds: options
                .grace_period_seconds
                .map(|seconds| u32::try_from(seconds).unwrap_or(1)),
            preconditions: options.preconditions.as_ref(),
        }
    }

    /// Returns whether the preconditions mean the stored `pod`.
    pub(super) fn target(&self, pod: &Pod) -> EvictionTarget {
        eviction_target(pod, self.uid(), self.preconditions.and_then(|of| of.resource_version.as_deref()))
    }

    /// Returns who evicts the pod `name`. `None` for an eviction that names the UID of the pod.
    pub(super) fn caller_by_name(&self, name: &str) -> Option<EvictionCaller> {
        let is_by_name = self.kind == DeletionKind::Evict && self.uid().is_none_or(str::is_empty);
        is_by_name.then(|| EvictionCaller {
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            user: self.user.to_owned(),
        })
    }

    fn uid(&self) -> Option<&'a str> {
        self.preconditions.and_then(|of| of.uid.as_deref())
    }

    /// Returns the deletion as [`podward_core::deletion::hold`] needs it.
    pub(super) fn attempt(&self) -> DeletionAttempt<'a> {
        DeletionAttempt { kind: self.kind, user: self.user, dry_run: self.dry_run }
    }

    /// Returns the request to record on the pod.
    pub(super) fn deletion_request(&self) -> DeletionRequest {
        DeletionRequest {
            grace_period_seconds: self.grace_period_seconds,
            ..DeletionRequest::new(self.kind, self.user, now())
        }
    }

    /// Returns the request on the pod that covers this deletion. `None` if there is none. Each eviction of a pod that is
    /// left to its CloneSet is recorded, because that renews its room in the disruption budget.
    pub(super) fn recorded_on(&self, pod: &Pod) -> Option<DeletionRequest> {
        if is_left_to_clone_set(pod) {
            return (self.kind == DeletionKind::Delete).then(|| self.deletion_request());
        }
        pod.deletion_request().filter(|recorded| self.is_covered_by(recorded, pod))
    }

    /// Returns true if `recorded`, the request on the pod, would not change if this deletion were recorded too. A
    /// request of the pod's workload covers only the workload's own deletes, because it is withdrawn when the
    /// workload's replica count changes.
    fn is_covered_by(&self, recorded: &DeletionRequest, pod: &Pod) -> bool {
        let is_repeated = recorded.by_workload && recorded.requested_by == self.user;
        let owner = pod.controller().map(|owner| owner.kind.as_str());
        let by_workload = is_by_workload(self.user, owner, false);
        let new = DeletionRequest { by_workload, ..self.deletion_request() };
        is_repeated || recorded.joined_by(&new, owner == Some("Job")).is_none()
    }
}
