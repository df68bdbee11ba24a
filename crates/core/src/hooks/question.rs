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

    /// Returns whether a call of `phase` may have reached `hook`, and the question is open or answered without an effect
    /// yet. After false, the hook is not called about the pod for the time that a write takes, so that the caller can act on
    /// it. False when this is not known.
    fn withhold_unless_asked(&self, _hook: &str, _phase: HookPhase) -> bool {
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
