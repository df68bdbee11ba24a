//! What people and metrics are told of hooks.

use podward_core::hooks::Phase;
use podward_core::{HookEvent, Note, Refused, UnixNanos};

use crate::cached_pod::CachedPod;
use crate::events::{Draft, Events};
use crate::metrics::Metrics;

/// Counts what happened with hooks, and sends an event for what isn't the normal course.
pub(crate) fn tell(events: &Events, metrics: &Metrics, pod: &CachedPod, notes: &[&Note], now: UnixNanos) {
    for note in notes {
        metrics.heard(note, now);
        let Some(draft) = draft(note) else { continue };
        match note.event {
            HookEvent::Removed | HookEvent::Released => events.normal(pod, draft),
            _ => events.warning(pod, draft.reason, draft.note),
        }
    }
}

/// Counts results that are refused from now on, and tells people of them; their operators are told by the label.
pub(crate) fn tell_of_refused(events: &Events, metrics: &Metrics, pod: &CachedPod, refused: &[Refused]) {
    for Refused { id, operation_type, by, reason } in refused {
        metrics.refused(operation_type);
        let note = format!(
            "operation {id} ({operation_type}): its result is refused by {by}: {reason}; the pod stays out of service until its operator \
             begins {id} again to roll it back, or cancels it, or nobody refuses the result any more"
        );
        events.warning(pod, "ResultRefused", note);
    }
}

fn draft(note: &Note) -> Option<Draft> {
    let (hook, phase) = (&note.hook, note.phase.as_str());
    let (reason, note) = match &note.event {
        HookEvent::Done(_) => return None,
        HookEvent::Rejected(reason) => {
            ("HookRejected", format!("hook {hook} says no to {phase}, and is asked again: {reason}"))
        }
        HookEvent::Overdue => (
            "HookOverdue",
            format!(
                "hook {hook} has not answered {phase} within its deadline; the pod waits on, as its policy says"
            ),
        ),
        HookEvent::Proceeded => (
            "HookTimedOut",
            format!(
                "hook {hook} has not answered {phase} within its deadline; the pod goes on without it, as its policy says{}",
                risk(note.phase)
            ),
        ),
        HookEvent::Cancelled(ids) => (
            "HookTimedOut",
            format!(
                "hook {hook} has not answered {phase} within its deadline; undone, as its policy says: {}",
                ids.join(", ")
            ),
        ),
        HookEvent::Removed if note.phase == Phase::Complete => (
            "HookRemoved",
            format!("hook {hook} is not registered any more; it is not waited for to take the pod in"),
        ),
        HookEvent::Removed => {
            ("HookRemoved", format!("hook {hook} is not registered any more; the pod was released from it"))
        }
        HookEvent::Released => (
            "HookReleased",
            format!(
                "the pod is not one of hook {hook} any more; it was released from it without asking, because the hook takes no part in RELEASE"
            ),
        ),
    };
    Some(Draft { reason, note })
}

fn risk(phase: Phase) -> &'static str {
    match phase {
        Phase::Prepare => "; it may still send traffic",
        Phase::Complete => "; it may send no traffic yet",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podward_core::hooks::EvidenceLevel;

    #[test]
    fn what_is_not_normal_is_told_with_the_hook_and_what_happens() {
        let note =
            |event| Note { hook: "mesh".to_owned(), phase: Phase::Prepare, since: UnixNanos(1), event };
        assert_eq!(draft(&note(HookEvent::Done(EvidenceLevel::Proven))), None);
        let told = draft(&note(HookEvent::Proceeded)).unwrap();
        assert_eq!(told.reason, "HookTimedOut");
        assert!(
            told.note.contains("hook mesh") && told.note.contains("may still send traffic"),
            "{}",
            told.note
        );
        let told = draft(&note(HookEvent::Cancelled(vec!["a".to_owned(), "b".to_owned()]))).unwrap();
        assert!(told.note.ends_with(": a, b"), "{}", told.note);
    }
}
