//! The conditions of a pod that Podward reads.

use jiff::Timestamp;
use podward_core::ConditionStatus;

/// The conditions of a pod that Podward reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    pub(super) gate: Option<ConditionStatus>,
    pub(super) gate_since: Option<Timestamp>,
    pub(super) ready: bool,
    pub(super) ready_since: Option<Timestamp>,
    pub(super) containers_ready: bool,
    pub(super) containers_ready_since: Option<Timestamp>,
    pub(super) lifecycle: Option<LifecycleCondition>,
    pub(super) taint_eviction: bool,
}

/// The condition `podward.io/lifecycle` as it is stored on the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleCondition {
    /// The status of the condition.
    pub status: ConditionStatus,
    /// The reason in CamelCase.
    pub reason: String,
    /// The text for people.
    pub message: String,
}
