//! The sentences about hooks.

use std::fmt::Write;

use crate::hooks::OpenHookQuestion;
use crate::hooks::{DeadlinePolicy, HookPhase};
use crate::model::expected_finalizers::ExpectedFinalizers;
use crate::model::hook_keys::hook_of_consumer_key;
use crate::model::time::UnixNanos;
use crate::model::view::PodView;

/// Returns the consumers that use the pod: hooks by name, others by finalizer. Empty when there is none.
pub(super) fn holders(pod: &PodView<'_>) -> String {
    let expected = pod.expected_finalizers().unwrap_or_default();
    let (mut hooks, mut others) = (Vec::new(), Vec::new());
    for finalizer in pod.protection_finalizers() {
        match expected.consumer(finalizer).and_then(hook_of_consumer_key) {
            Some(hook) => hooks.push(format!("hook {hook}")),
            None => others.push(finalizer),
        }
    }
    if !others.is_empty() {
        hooks.push(format!("the owners of {}", others.join(", ")));
    }
    hooks.join(" and ")
}

/// Returns the consumers that are expected to use the pod and do not.
pub(super) fn missing_consumers(pod: &PodView<'_>, expected: &ExpectedFinalizers) -> Vec<String> {
    let named = |(consumer, finalizer): (&str, &str)| match hook_of_consumer_key(consumer) {
        Some(hook) => format!("hook {hook}"),
        None => format!("{consumer} (finalizer {finalizer})"),
    };
    expected.missing(pod.finalizers).map(named).collect()
}

/// Returns whether a hook is among the missing consumers.
pub(super) fn misses_hook(pod: &PodView<'_>, expected: &ExpectedFinalizers) -> bool {
    expected.missing(pod.finalizers).any(|(consumer, _)| hook_of_consumer_key(consumer).is_some())
}

/// Returns the hooks that are asked in `phase` (for the operation `id` if given), or `None`.
pub(super) fn open_requests(open: &[OpenHookQuestion], phase: HookPhase, id: Option<&str>) -> Option<String> {
    let is_for = |open: &&OpenHookQuestion| {
        let operations = &open.question.operations;
        open.question.phase == phase && id.is_none_or(|id| operations.iter().any(|(other, _)| other == id))
    };
    let names: Vec<String> =
        open.iter().filter(is_for).map(|open| format!("hook {}", open.question.hook)).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// Returns the state of a question: since when it is open, the answer of the hook, the deadline and its effect. `None`
/// when nothing waits for the answer.
pub(super) fn sentence(open: &OpenHookQuestion) -> Option<String> {
    let question = &open.question;
    if question.deadline == UnixNanos(i64::MAX) {
        return None;
    }
    let mut text =
        format!("hook {}: {} since {}", question.hook, question.phase.as_str(), question.since.to_rfc3339());
    let _ = match (open.rejected, open.message.as_str()) {
        (true, message) => write!(text, ", rejected: {message}"),
        (false, "") => write!(text, ", no answer yet"),
        (false, message) => write!(text, ", {message}"),
    };
    let deadline = question.deadline.to_rfc3339();
    let can_undo = matches!(question.phase, HookPhase::PreCheck | HookPhase::Prepare);
    let _ = match (open.overdue, open.policy) {
        (true, DeadlinePolicy::Hold) => {
            write!(text, "; overdue since {deadline}, and the pod keeps waiting")
        }
        (true, DeadlinePolicy::Cancel) if !can_undo => {
            write!(text, "; overdue since {deadline}, and the pod keeps waiting")
        }
        (true, _) => write!(text, "; overdue since {deadline}"),
        (false, DeadlinePolicy::Proceed) => write!(text, "; at {deadline} the pod continues without it"),
        (false, DeadlinePolicy::Cancel) if can_undo => {
            write!(text, "; at {deadline} the operation is undone")
        }
        (false, _) => write!(text, "; due by {deadline}, and the pod keeps waiting after that"),
    };
    Some(text)
}

/// Returns the earliest deadline of a hook in the message of the lifecycle condition, or `None` if the message has none.
/// A deadline in the past is overdue.
///
/// ```
/// use podward_core::{UnixNanos, deadline_of_message};
///
/// let message = "hook a: PREPARE since 2026-01-01T10:00:00Z, no answer yet; due by 2026-01-01T10:05:00Z, and the pod \
///                keeps waiting after that";
/// assert_eq!(deadline_of_message(message), UnixNanos::parse("2026-01-01T10:05:00Z"));
/// ```
#[must_use]
pub fn deadline_of_message(message: &str) -> Option<UnixNanos> {
    let times = ["; due by ", "; at ", "; overdue since "].into_iter().flat_map(|before| {
        let after = message.split(before).skip(1);
        after.filter_map(|text| UnixNanos::parse(text.split_inclusive('Z').next()?))
    });
    times.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::HookQuestion;

    #[test]
    fn every_deadline_of_a_sentence_is_read() {
        let deadline = UnixNanos::parse("2026-01-01T10:05:00Z").unwrap();
        for policy in [DeadlinePolicy::Hold, DeadlinePolicy::Proceed, DeadlinePolicy::Cancel] {
            for overdue in [false, true] {
                for phase in [HookPhase::Prepare, HookPhase::Complete] {
                    let since = UnixNanos::parse("2026-01-01T10:00:00Z").unwrap();
                    let (hook, operations) = ("a".to_owned(), Vec::new());
                    let question = HookQuestion { hook, phase, operations, since, deadline };
                    let (message, rejected) = ("busy; at lunch".to_owned(), false);
                    let text =
                        sentence(&OpenHookQuestion { question, policy, message, rejected, overdue }).unwrap();
                    assert_eq!(deadline_of_message(&text), Some(deadline), "{text}");
                }
            }
        }
        assert_eq!(deadline_of_message("the pod is in service"), None);
    }
}
