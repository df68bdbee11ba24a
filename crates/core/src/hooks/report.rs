//! Reports about hooks for events, metrics and traces.

use crate::model::time::UnixNanos;

use super::evidence::EvidenceLevel;
use super::hook::HookPhase;

/// A report about a hook. Every plan may contain it again until the plan is stored; hook, phase, `since` and the kind
/// of `event` identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookReport {
    /// The name of the hook, or its finalizer when the name is unknown.
    pub hook: String,
    /// The phase of the question.
    pub phase: HookPhase,
    /// The time at which the question was first asked.
    pub since: UnixNanos,
    /// The event.
    pub event: HookEvent,
}

/// An event of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEvent {
    /// The hook has answered, and the pod continues.
    Done(EvidenceLevel),
    /// The hook rejected for this reason. It is asked again.
    Rejected(String),
    /// The deadline has passed, and the pod keeps waiting.
    Overdue,
    /// The deadline has passed, and the pod continues without the hook.
    Proceeded,
    /// The deadline has passed, and these operations are undone.
    Cancelled(Vec<String>),
    /// The hook is no longer registered, and its finalizer was removed.
    Removed,
    /// The pod no longer matches the hook, which has no release phase, so its finalizer was removed.
    Released,
}

impl HookEvent {
    /// Returns the name of the event in CamelCase.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            HookEvent::Done(_) => "Done",
            HookEvent::Rejected(_) => "Rejected",
            HookEvent::Overdue => "Overdue",
            HookEvent::Proceeded => "Proceeded",
            HookEvent::Cancelled(_) => "Cancelled",
            HookEvent::Removed => "Removed",
            HookEvent::Released => "Released",
        }
    }
}
