//! The annotation changes of Busy: those that the application could write itself, and the deletion cost that makes a
//! ReplicaSet delete idle pods first.

use podward_core::UnixNanos;
use podward_core::busy::{BusyClaim, reason_fault};
use podward_core::keys::{BUSY_REASON, BUSY_UNTIL};
use podward_kube_util::{CachedPod, deletion_cost_changes};
use tonic::Status;

use super::operations::check_can_begin;
use super::pod_change::PodChange;

const SECOND: i64 = 1_000_000_000;

/// Returns the time of a request, rounded up to a whole second.
///
/// # Errors
/// INVALID_ARGUMENT if the time is not valid or is later than the year 2262.
pub(super) fn parse_until(time: prost_types::Timestamp) -> Result<UnixNanos, Status> {
    let wrong = || {
        let (seconds, nanos) = (time.seconds, time.nanos);
        Status::invalid_argument(format!(
            "the field until ({seconds} s, {nanos} ns) is not a time up to the year 2262"
        ))
    };
    if !(0..1_000_000_000).contains(&time.nanos) {
        return Err(wrong());
    }
    let seconds = time.seconds.checked_add(i64::from(time.nanos > 0));
    seconds.and_then(|seconds| seconds.checked_mul(SECOND)).map(UnixNanos).ok_or_else(wrong)
}

/// Checks the length of the reason.
///
/// # Errors
/// INVALID_ARGUMENT if it is too long.
pub(super) fn check_reason(reason: &str) -> Result<(), Status> {
    reason_fault(reason).map_or(Ok(()), |fault| Err(Status::invalid_argument(fault)))
}

/// Returns the change that marks `pod` as busy until the given time; `None` or a time in the past marks it as idle. A
/// busy pod does not get an earlier time.
///
/// # Errors
/// FAILED_PRECONDITION if the pod has not opted in or is being deleted.
pub(super) fn mark_busy(
    pod: &CachedPod,
    until: Option<UnixNanos>,
    reason: &str,
    now: UnixNanos,
) -> Result<PodChange, Status> {
    let facts = pod.view().facts;
    let changes = match until.filter(|until| *until > now) {
        None => {
            let present = [(BUSY_UNTIL, facts.busy_until), (BUSY_REASON, facts.busy_reason)];
            let present = present.into_iter().filter(|(_, text)| text.is_some());
            let mut removed: Vec<_> = present.map(|(key, _)| (key, None)).collect();
            removed.extend(deletion_cost_changes(pod, false, now));
            removed
        }
        Some(until) => {
            check_can_begin(pod)?;
            let work = BusyClaim::of(&pod.view()).at(now);
            if work.is_some_and(|work| work.until >= until) {
                return Ok(PodChange::None);
            }
            let mut changes = vec![(BUSY_UNTIL, Some(until.to_rfc3339()))];
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            if facts.busy_reason != reason {
                changes.push((BUSY_REASON, reason.map(ToOwned::to_owned)));
            }
            changes.extend(deletion_cost_changes(pod, true, now));
            changes
        }
    };
    Ok(if changes.is_empty() { PodChange::None } else { PodChange::Annotations(changes) })
}

#[cfg(test)]
mod tests {
    use podward_core::busy::HIGHEST_COST;
    use podward_core::keys::{CONTROL_LABEL, IDLE_DELETION_COST, POD_DELETION_COST};
    use serde_json::{Value, json};
    use tonic::Code;

    use super::*;

    const NOW: UnixNanos = UnixNanos(5 * SECOND);

    fn pod(owner: &str, annotations: Value) -> CachedPod {
        serde_json::from_value(json!({"metadata": {
            "name": "web", "namespace": "shop", "labels": {CONTROL_LABEL: "true"}, "annotations": annotations,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "1", "controller": true},
            ],
        }}))
        .unwrap()
    }

    fn at(seconds: i64) -> Option<UnixNanos> {
        Some(UnixNanos(seconds * SECOND))
    }

    fn texts(decision: Result<PodChange, Status>) -> Value {
        match decision.unwrap() {
            PodChange::Annotations(texts) => {
                texts.into_iter().map(|(key, text)| (key.to_owned(), json!(text))).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_write_changes_the_deletion_cost() {
        let idle = pod("ReplicaSet", json!({POD_DELETION_COST: "3"}));
        let changes = texts(mark_busy(&idle, at(9), "encoding", NOW));
        let mark = format!(r#"{{"cost":"3","since":{}}}"#, NOW.0);
        assert_eq!(
            changes,
            json!({
                BUSY_UNTIL: "1970-01-01T00:00:09Z", BUSY_REASON: "encoding",
                POD_DELETION_COST: HIGHEST_COST, IDLE_DELETION_COST: mark,
            })
        );
        let busy = pod("ReplicaSet", changes);
        assert_eq!(
            texts(mark_busy(&busy, at(10), "encoding", NOW)),
            json!({BUSY_UNTIL: "1970-01-01T00:00:10Z"})
        );
        assert_eq!(
            mark_busy(&busy, at(8), "", NOW).unwrap(),
            PodChange::None,
            "an earlier end changes nothing"
        );
        for ended in [None, at(5), at(-1)] {
            let gone = json!({
                BUSY_UNTIL: null, BUSY_REASON: null, POD_DELETION_COST: "3", IDLE_DELETION_COST: null,
            });
            assert_eq!(texts(mark_busy(&busy, ended, "", NOW)), gone);
        }
    }

    #[test]
    fn only_pods_of_replica_sets_get_a_deletion_cost() {
        let changes = texts(mark_busy(&pod("StatefulSet", json!({})), at(9), "", NOW));
        assert_eq!(changes, json!({BUSY_UNTIL: "1970-01-01T00:00:09Z"}));
        let idle = pod("StatefulSet", json!({}));
        assert_eq!(mark_busy(&idle, None, "", NOW).unwrap(), PodChange::None);
        // An unreadable time does not make a pod busy; it is overwritten or removed.
        let garbage = pod("StatefulSet", json!({BUSY_UNTIL: "soon"}));
        assert_eq!(texts(mark_busy(&garbage, at(9), "", NOW)), changes);
        assert_eq!(texts(mark_busy(&garbage, None, "", NOW)), json!({BUSY_UNTIL: null}));
    }

    #[test]
    fn times_are_rounded_up_and_invalid_ones_refused() {
        let time = |seconds, nanos| parse_until(prost_types::Timestamp { seconds, nanos });
        assert_eq!(time(7, 0).unwrap(), UnixNanos(7 * SECOND));
        assert_eq!(time(7, 1).unwrap(), UnixNanos(8 * SECOND));
        for (seconds, nanos) in [(7, -1), (7, 1_000_000_000), (i64::MAX, 1), (i64::MAX, 0), (1 << 40, 0)] {
            assert_eq!(time(seconds, nanos).unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!(check_reason(&"x".repeat(257)).unwrap_err().code(), Code::InvalidArgument);
        check_reason(&"x".repeat(256)).unwrap();
    }

    #[test]
    fn a_pod_that_has_not_opted_in_is_refused() {
        let other: CachedPod =
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}})).unwrap();
        assert_eq!(mark_busy(&other, at(9), "", NOW).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(mark_busy(&other, None, "", NOW).unwrap(), PodChange::None);
    }
}
