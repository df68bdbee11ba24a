//! A registered hook.

use std::collections::BTreeMap;

use crate::protocol::objection::PostCheckRejection;

use super::selector::Selector;

/// The question of a hook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPhase {
    /// May this operation start?
    PreCheck,
    /// Remove the pod from traffic.
    Prepare,
    /// Is the operation's result good?
    PostCheck,
    /// Add the pod to traffic.
    Complete,
    /// The pod is gone, terminates, or no longer matches the hook: forget it.
    Release,
}

impl HookPhase {
    /// Returns the name as in `podward.v1.Phase`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HookPhase::PreCheck => "PRE_CHECK",
            HookPhase::Prepare => "PREPARE",
            HookPhase::PostCheck => "POST_CHECK",
            HookPhase::Complete => "COMPLETE",
            HookPhase::Release => "RELEASE",
        }
    }
}

/// The effect of a missed deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlinePolicy {
    /// The pod keeps waiting.
    #[default]
    Hold,
    /// The pod continues without the hook.
    Proceed,
    /// The operation is undone. Where nothing can be undone, this is [`DeadlinePolicy::Hold`].
    Cancel,
}

/// The effect of an unreachable hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The pod waits for the hook.
    #[default]
    Fail,
    /// The pod continues without the hook.
    Ignore,
}

/// The time of a question relative to the readiness gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateTiming {
    /// Before the gate changes.
    BeforeGate,
    /// After the gate has changed (and, for [`HookPhase::Complete`], the pod is Ready).
    AfterGate,
}

/// A registered hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The name, unique in the cluster.
    pub name: String,
    /// The pods that the hook applies to.
    pub pod_selector: Selector,
    /// The namespaces that the hook applies to.
    pub namespace_selector: Selector,
    /// The questions that the hook answers.
    pub phases: Vec<HookPhase>,
    /// The operation types that the hook checks. Empty means all types.
    pub operation_types: Vec<String>,
    /// Hooks with a lower order are asked first. For [`HookPhase::Complete`] the order is reversed, and does not matter
    /// while the pod is in service.
    pub order: i32,
    /// The time for an answer, in nanoseconds.
    pub deadline_nanoseconds: i64,
    /// The effect of a missed deadline.
    pub deadline_policy: DeadlinePolicy,
    /// The effect of an unreachable hook.
    pub failure_policy: FailurePolicy,
    /// The effect of a refused result.
    pub post_check_rejection: PostCheckRejection,
    /// The time of [`HookPhase::Prepare`].
    pub prepare_timing: GateTiming,
    /// The time of [`HookPhase::Complete`].
    pub complete_timing: GateTiming,
}

impl Hook {
    /// Returns whether the hook is a consumer, so that it has a finalizer.
    #[must_use]
    pub fn is_consumer(&self) -> bool {
        self.phases.iter().any(|phase| matches!(phase, HookPhase::Prepare | HookPhase::Complete))
    }

    /// Returns whether the hook applies to a pod with these labels in a namespace with those labels. The caller checks
    /// whether the pod has opted in.
    #[must_use]
    pub fn concerns(
        &self,
        pod_labels: &BTreeMap<String, String>,
        namespace_labels: &BTreeMap<String, String>,
    ) -> bool {
        // The namespace first: the hook of a team does not cost the pods of others more than that.
        self.namespace_selector.matches(namespace_labels) && self.pod_selector.matches(pod_labels)
    }

    /// Returns whether the hook is asked in `phase`.
    #[must_use]
    pub fn takes_part_in(&self, phase: HookPhase) -> bool {
        self.phases.contains(&phase)
    }

    /// Returns whether the hook checks operations of this type.
    #[must_use]
    pub fn checks_type(&self, operation_type: &str) -> bool {
        self.operation_types.is_empty() || self.operation_types.iter().any(|known| known == operation_type)
    }
}
