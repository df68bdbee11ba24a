//! Events and metrics of what hooks report.

use podward_core::hooks::HookPhase;
use podward_core::{HookEvent, HookReport, RefusedResult, UnixNanos};

use podward_kube_util::{CachedPod, EventDraft, Events};

use super::metrics::Metrics;

/// Counts the `notes` and sends an event for each that is not part of a normal course.
pub(super) fn report(
    events: &Events,
    metrics: &Metrics,
    pod: &CachedPod,
    notes: &[&HookReport],
    now: UnixNanos,
) {
    for note in notes {
        metrics.callbacks.reported(note, now);
        let Some(draft) = draft(note) else { continue };
        match note.event {
            HookEvent::Removed | HookEvent::Released => events.normal(pod, draft),
            _ => events.warning(pod, draft.reason, draft.note),
        }
    }
}

/// Counts the results that are refused from now on and sends an event for each. The label `rollback.podward.io/<id>`
/// informs the operator.
pub(super) fn report_refused(events: &Events, metrics: &Metrics, pod: &CachedPod, refused: &[RefusedResult]) {
    for RefusedResult { id, operation_type, by, reason } in refused {
        metrics.refused(operation_type);
        let note = format!(
            "operation {id} ({operation_type}): the result is refused by {by}: {reason}; the pod stays out of service until its \
             operator begins {id} again to roll back, or cancels it, or the refusal is withdrawn"
        );
        events.warning(pod, "ResultRefused", note);
    }
}

/// Returns the event for `note`, or `None` if it needs none.
fn draft(note: &HookReport) -> Option<EventDraft> {
    let (hook, phase) = (&note.hook, note.phase.as_str());
    let (reason, note) = match &note.event {
        HookEvent::Done(_) => return None,
        HookEvent::Rejected(reason) => {
            ("HookRejected", format!("hook {hook} rejected {phase} and is asked again: {reason}"))
        }
        HookEvent::Overdue => (
            "HookOverdue",
            format!(
                "hook {hook} has not answered {phase} within its deadline; the pod keeps waiting (deadlinePolicy Hold)"
            ),
        ),
        HookEvent::Proceeded => (
            "HookTimedOut",
            format!(
                "hook {hook} has not answered {phase} within its deadline; the pod proceeds without it (deadlinePolicy Proceed){}",
                risk(note.phase)
            ),
        ),
        HookEvent::Cancelled(ids) => (
            "HookTimedOut",
            format!(
                "hook {hook} has not answered {phase} within its deadline; cancelled operations (deadlinePolicy Cancel): {}",
                ids.join(", ")
            ),
        ),
        HookEvent::Removed if note.phase == HookPhase::Complete => (
            "HookRemoved",
            format!(
                "hook {hook} is not registered any more; the pod does not wait for it to add the pod to traffic"
            ),
        ),
        HookEvent::Removed => {
            ("HookRemoved", format!("hook {hook} is not registered any more; the pod was released from it"))
        }
        HookEvent::Released => (
            "HookReleased",
            format!(
                "hook {hook} does not select the pod any more; the pod was released from it without a request, because the hook does \
                 not handle RELEASE"
            ),
        ),
    };
    Some(EventDraft { reason, note })
}

fn risk(phase: HookPhase) -> &'static str {
    match phase {
        HookPhase::Prepare => "; it may still send traffic",
        HookPhase::Complete => "; it may send no traffic yet",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podward_core::hooks::EvidenceLevel;

    #[test]
    fn an_event_names_the_hook_and_what_happens_next() {
        let note = |event| HookReport {
            hook: "mesh".to_owned(),
            phase: HookPhase::Prepare,
            since: UnixNanos(1),
            event,
        };
        assert_eq!(draft(&note(HookEvent::Done(EvidenceLevel::Proven))), None);
        let event = draft(&note(HookEvent::Proceeded)).unwrap();
        assert_eq!(event.reason, "HookTimedOut");
        assert!(
            event.note.contains("hook mesh") && event.note.contains("may still send traffic"),
            "{}",
            event.note
        );
        let event = draft(&note(HookEvent::Cancelled(vec!["a".to_owned(), "b".to_owned()]))).unwrap();
        assert!(event.note.ends_with(": a, b"), "{}", event.note);
    }
}
