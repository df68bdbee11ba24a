//! The changes that the leader makes for a pod's deletion, and the pre-check of the deletion.

use std::time::Duration;

use podward_core::deletion::request::{DeletionKind, DeletionRequestChanges};
use podward_core::keys::{DELETE_OPERATION, DELETE_TYPE};
use podward_core::{CheckResult, Checks, Objection};
use podward_kube_util::EventDraft;
use podward_runtime::retry::spread;

/// The time after which a budget is read again if its watch reports no change.
pub(crate) const BUDGET_RECHECK_DELAY: Duration = Duration::from_secs(30);

/// The result of [`Deletions::step`](crate::Deletions::step).
#[derive(Debug, Default)]
pub struct DeletionStep {
    /// The changes to merge into the write. The labels are applied before the engine plans, because the engine
    /// executes the undo label that a cancellation sets. The annotations are written as they are.
    pub changes: DeletionRequestChanges,
    /// The reason for which the operation stays in its pre-check. `None` if it may leave it.
    pub wait: Option<String>,
    /// The event to send after the write.
    pub event: Option<EventDraft>,
    /// The time after which to look again if nothing happens.
    pub wake: Option<Duration>,
    /// True if the room reserved in budgets is released after the write.
    pub release_room: bool,
    /// The kind, whether the workload requested it, and the outcome, to count after the write.
    pub(crate) outcome: Option<(DeletionKind, bool, &'static str)>,
}

impl DeletionStep {
    /// Returns `others` and the check of this step.
    pub fn checks<'a>(&'a self, others: &'a dyn Checks) -> DeletionChecks<'a> {
        DeletionChecks { wait: self.wait.as_deref(), others }
    }

    pub(crate) fn wait(text: String) -> DeletionStep {
        DeletionStep {
            wait: Some(text),
            wake: Some(spread(BUDGET_RECHECK_DELAY, 0.25)),
            ..DeletionStep::default()
        }
    }

    pub(crate) fn change(changes: DeletionRequestChanges) -> DeletionStep {
        DeletionStep { changes, ..DeletionStep::default() }
    }
}

/// The pre-check of the operation `pod-delete`, and other checks.
#[derive(Clone, Copy)]
pub struct DeletionChecks<'a> {
    wait: Option<&'a str>,
    others: &'a dyn Checks,
}

impl Checks for DeletionChecks<'_> {
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult {
        match self.wait {
            Some(reason) if id == DELETE_OPERATION && operation_type == DELETE_TYPE => {
                match self.others.pre_check(id, operation_type) {
                    CheckResult::Pass => CheckResult::Wait(reason.to_owned()),
                    CheckResult::Wait(others) => CheckResult::Wait(format!("{reason}; {others}")),
                }
            }
            _ => self.others.pre_check(id, operation_type),
        }
    }

    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult {
        self.others.post_check(id, operation_type)
    }

    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection> {
        self.others.objections(id, operation_type)
    }
}
