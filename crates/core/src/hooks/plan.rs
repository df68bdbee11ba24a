//! The plan for one pod: what the controller writes, and which questions it asks.

use crate::model::label_changes::LabelChanges;
use crate::model::time::UnixNanos;
use crate::model::view::ConditionStatus;
use crate::protocol::refusals::RefusedResult;

use super::hook::DeadlinePolicy;
use super::question::HookQuestion;
use super::report::HookReport;

/// The plan for a pod: one write, and then the questions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPlan {
    /// The label changes.
    pub labels: LabelChanges,
    /// The new status of the gate's condition, or `None` when it does not change. Its time is [`PodPlan::now`] in whole
    /// seconds.
    pub gate: Option<ConditionStatus>,
    /// The finalizers of hooks to add and to remove.
    pub finalizers: FinalizerChanges,
    /// The annotations to write with their new text; `None` removes the annotation.
    pub annotations: Vec<(&'static str, Option<String>)>,
    /// The questions that are open after the write.
    pub open: Vec<OpenHookQuestion>,
    /// Answered questions whose answers have no effect until others are answered, too.
    pub kept: Vec<HookQuestion>,
    /// The reports for events, metrics and traces after the write.
    pub hook_reports: Vec<HookReport>,
    /// The results that are refused from this write on.
    pub refused: Vec<RefusedResult>,
    /// The time to plan again if nothing changes before: the next deadline.
    pub wake: Option<UnixNanos>,
    /// The time of the plan.
    pub now: UnixNanos,
    /// The wanted annotation of expected finalizers, also when it waits for another write.
    pub(crate) expected: Option<String>,
    /// The wanted annotation of refused results, also when it waits for another write.
    pub(crate) refusals: Option<String>,
}

impl PodPlan {
    /// Returns true if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.gate.is_none()
            && self.finalizers.is_empty()
            && self.annotations.is_empty()
    }

    /// Returns the questions whose answers matter: the open ones, and those whose answer must be kept. The answers to
    /// all others may be forgotten.
    #[must_use]
    pub fn questions(&self) -> Vec<HookQuestion> {
        self.open.iter().map(|open| &open.question).chain(&self.kept).cloned().collect()
    }
}

/// The finalizers to add and to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalizerChanges {
    /// The finalizers to add.
    pub add: Vec<String>,
    /// The finalizers to remove.
    pub remove: Vec<String>,
}

impl FinalizerChanges {
    /// Returns true if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// Applies the changes to `finalizers`.
    pub fn apply(&self, finalizers: &mut Vec<String>) {
        finalizers.retain(|finalizer| !self.remove.contains(finalizer));
        finalizers.extend(self.add.iter().cloned());
    }
}

/// An open question and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHookQuestion {
    /// The question.
    pub question: HookQuestion,
    /// The deadline policy.
    pub policy: DeadlinePolicy,
    /// True if the deadline has passed.
    pub overdue: bool,
    /// True if the last answer of the hook was a rejection.
    pub rejected: bool,
    /// What the hook waits for, why it rejected, or why it cannot be reached. Empty when it has not answered.
    pub message: String,
}
