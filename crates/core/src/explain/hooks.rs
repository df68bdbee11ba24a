//! What is said of hooks.

use std::fmt::Write;

use crate::consumers::OpenQuestion;
use crate::expected::ExpectedFinalizers;
use crate::hooks::{DeadlinePolicy, Phase, hook_of};
use crate::time::UnixNanos;
use crate::view::PodView;

/// Everybody who holds the pod: hooks by name, others by their finalizer. Empty when nobody does.
pub(super) fn holders(pod: &PodView<'_>) -> String {
    let expected = pod.expected_finalizers().unwrap_or_default();
    let (mut hooks, mut others) = (Vec::new(), Vec::new());
    for finalizer in pod.protection_finalizers() {
        match expected.employer(finalizer).and_then(hook_of) {
            Some(hook) => hooks.push(format!("hook {hook}")),
            None => others.push(finalizer),
        }
    }
    if !others.is_empty() {
        hooks.push(format!("the owners of {}", others.join(", ")));
    }
    hooks.join(" and ")
}

/// Everybody who is expected to hold the pod and doesn't.
pub(super) fn missing_consumers(pod: &PodView<'_>, expected: &ExpectedFinalizers) -> Vec<String> {
    let named = |(employer, finalizer): (&str, &str)| match hook_of(employer) {
        Some(hook) => format!("hook {hook}"),
        None => format!("{employer} (finalizer {finalizer})"),
    };
    expected.missing(pod.finalizers).map(named).collect()
}

/// Whether a hook is among those who are expected to hold the pod and don't.
pub(super) fn misses_hook(pod: &PodView<'_>, expected: &ExpectedFinalizers) -> bool {
    expected.missing(pod.finalizers).any(|(employer, _)| hook_of(employer).is_some())
}

/// The hooks that are asked in `phase` (for the operation `id`, if that is given), or `None`.
pub(super) fn asked(open: &[OpenQuestion], phase: Phase, id: Option<&str>) -> Option<String> {
    let is_for = |open: &&OpenQuestion| {
        let operations = &open.question.operations;
        open.question.phase == phase && id.is_none_or(|id| operations.iter().any(|(other, _)| other == id))
    };
    let names: Vec<String> =
        open.iter().filter(is_for).map(|open| format!("hook {}", open.question.hook)).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// How a question stands: since when it is open, what the hook says, until when it is waited for and what happens then. `None` where
/// nothing waits for the answer.
pub(super) fn sentence(open: &OpenQuestion) -> Option<String> {
    let question = &open.question;
    if question.deadline == UnixNanos(i64::MAX) {
        return None;
    }
    let mut said =
        format!("hook {}: {} since {}", question.hook, question.phase.as_str(), question.since.to_rfc3339());
    let _ = match (open.rejected, open.message.as_str()) {
        (true, message) => write!(said, ", says no: {message}"),
        (false, "") => write!(said, ", no answer yet"),
        (false, message) => write!(said, ", {message}"),
    };
    let deadline = question.deadline.to_rfc3339();
    let can_undo = matches!(question.phase, Phase::PreCheck | Phase::Prepare);
    let _ = match (open.overdue, open.policy) {
        (true, DeadlinePolicy::Hold) => {
            write!(said, "; overdue since {deadline}, and waited for all the same")
        }
        (true, DeadlinePolicy::Cancel) if !can_undo => {
            write!(said, "; overdue since {deadline}, and waited for all the same")
        }
        (true, _) => write!(said, "; overdue since {deadline}"),
        (false, DeadlinePolicy::Proceed) => write!(said, "; at {deadline} the pod goes on without it"),
        (false, DeadlinePolicy::Cancel) if can_undo => {
            write!(said, "; at {deadline} the operation is undone")
        }
        (false, _) => write!(said, "; due by {deadline}, and waited for after that"),
    };
    Some(said)
}
