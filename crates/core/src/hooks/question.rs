//! Questions to hooks, and the answers.

use crate::model::time::UnixNanos;

use super::evidence::Evidence;
use super::hook::HookPhase;

/// The state of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// The hook has not answered yet, or is asked again later.
    Open {
        /// What the hook waits for, or why it cannot be reached. Empty when it has not answered.
        message: String,
    },
    /// The hook rejected. It is asked again.
    Rejected {
        /// The reason.
        reason: String,
    },
    /// The hook is done.
    Done(Evidence),
}

/// An open question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookQuestion {
    /// The hook that is asked.
    pub hook: String,
    /// The phase of the question.
    pub phase: HookPhase,
    /// The operations of the question, id and type, by id.
    pub operations: Vec<(String, String)>,
    /// The time of the first request, read from the pod so that it survives restarts. With hook, phase and pod UID it
    /// identifies the question; in a check the operations do too.
    pub since: UnixNanos,
    /// The time at which the deadline policy applies.
    pub deadline: UnixNanos,
}

/// The answers to the questions about one pod.
pub trait HookAnswers {
    /// Returns the answer to `question`, or `None` when it has not been asked.
    fn answer(&self, question: &HookQuestion) -> Option<HookAnswer>;

    /// Returns whether `hook` was called in `phase`, and the question is open or answered without an effect yet, so that the
    /// hook may have acted. After false it is not called until the decision is written. False when this is not known.
    fn is_asked(&self, _hook: &str, _phase: HookPhase) -> bool {
        false
    }
}

/// No answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHookAnswers;

impl HookAnswers for NoHookAnswers {
    fn answer(&self, _: &HookQuestion) -> Option<HookAnswer> {
        None
    }
}
