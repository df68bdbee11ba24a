//! What Busy writes: the annotations that the application itself could, and the cost that keeps idle pods before it.

use podward_core::UnixNanos;
use podward_core::busy::{Claim, reason_fault};
use podward_core::keys::{BUSY_REASON, BUSY_UNTIL};
use tonic::Status;

use super::change::Decision;
use super::pods::must_be_open;
use crate::busy::costs;
use crate::cached_pod::CachedPod;

const SECOND: i64 = 1_000_000_000;

/// Reads a time that came over the wire, rounded up to a whole second.
pub(super) fn until(time: prost_types::Timestamp) -> Result<UnixNanos, Status> {
    let wrong = || {
        let (seconds, nanos) = (time.seconds, time.nanos);
        Status::invalid_argument(format!("until: {seconds} s and {nanos} ns is no time up to the year 2262"))
    };
    if !(0..1_000_000_000).contains(&time.nanos) {
        return Err(wrong());
    }
    let seconds = time.seconds.checked_add(i64::from(time.nanos > 0));
    seconds.and_then(|seconds| seconds.checked_mul(SECOND)).map(UnixNanos).ok_or_else(wrong)
}

/// Refuses a reason that no condition has room for.
pub(super) fn check_reason(reason: &str) -> Result<(), Status> {
    reason_fault(reason).map_or(Ok(()), |fault| Err(Status::invalid_argument(fault)))
}

/// Says that `pod` is busy until then, or not any more.
pub(super) fn say_busy(
    pod: &CachedPod,
    until: Option<UnixNanos>,
    reason: &str,
    now: UnixNanos,
) -> Result<Decision, Status> {
    let facts = pod.view().facts;
    let said = match until.filter(|until| *until > now) {
        None => {
            let present = [(BUSY_UNTIL, facts.busy_until), (BUSY_REASON, facts.busy_reason)];
            let present = present.into_iter().filter(|(_, text)| text.is_some());
            let mut gone: Vec<_> = present.map(|(key, _)| (key, None)).collect();
            gone.extend(costs(pod, false, now));
            gone
        }
        Some(until) => {
            must_be_open(pod)?;
            let work = Claim::of(&pod.view()).at(now);
            if work.is_some_and(|work| work.until >= until) {
                return Ok(Decision::Nothing);
            }
            let mut said = vec![(BUSY_UNTIL, Some(until.to_rfc3339()))];
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            if facts.busy_reason != reason {
                said.push((BUSY_REASON, reason.map(ToOwned::to_owned)));
            }
            said.extend(costs(pod, true, now));
            said
        }
    };
    Ok(if said.is_empty() { Decision::Nothing } else { Decision::Annotate(said) })
}

#[cfg(test)]
mod tests {
    use podward_core::busy::DEAREST;
    use podward_core::keys::{CONTROL_LABEL, IDLE_DELETION_COST, POD_DELETION_COST};
    use serde_json::{Value, json};
    use tonic::Code;

    use super::*;

    const NOW: UnixNanos = UnixNanos(5 * SECOND);

    fn pod(owner: &str, annotations: Value) -> CachedPod {
        serde_json::from_value(json!({"metadata": {
            "name": "web", "namespace": "shop", "labels": {CONTROL_LABEL: "true"}, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "1", "controller": true}],
        }}))
        .unwrap()
    }

    fn at(seconds: i64) -> Option<UnixNanos> {
        Some(UnixNanos(seconds * SECOND))
    }

    fn texts(decision: Result<Decision, Status>) -> Value {
        match decision.unwrap() {
            Decision::Annotate(texts) => {
                texts.into_iter().map(|(key, text)| (key.to_owned(), json!(text))).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_cost_rises_and_falls_in_the_same_writes() {
        let idle = pod("ReplicaSet", json!({POD_DELETION_COST: "3"}));
        let said = texts(say_busy(&idle, at(9), "encoding", NOW));
        let mark = format!(r#"{{"cost":"3","since":{}}}"#, NOW.0);
        assert_eq!(
            said,
            json!({
                BUSY_UNTIL: "1970-01-01T00:00:09Z", BUSY_REASON: "encoding",
                POD_DELETION_COST: DEAREST, IDLE_DELETION_COST: mark,
            })
        );
        let busy = pod("ReplicaSet", said);
        assert_eq!(
            texts(say_busy(&busy, at(10), "encoding", NOW)),
            json!({BUSY_UNTIL: "1970-01-01T00:00:10Z"})
        );
        assert_eq!(say_busy(&busy, at(8), "", NOW).unwrap(), Decision::Nothing, "an earlier end is none");
        for ended in [None, at(5), at(-1)] {
            let gone = json!({
                BUSY_UNTIL: null, BUSY_REASON: null, POD_DELETION_COST: "3", IDLE_DELETION_COST: null,
            });
            assert_eq!(texts(say_busy(&busy, ended, "", NOW)), gone);
        }
    }

    #[test]
    fn only_who_is_chosen_by_cost_gets_one() {
        let said = texts(say_busy(&pod("StatefulSet", json!({})), at(9), "", NOW));
        assert_eq!(said, json!({BUSY_UNTIL: "1970-01-01T00:00:09Z"}));
        let idle = pod("StatefulSet", json!({}));
        assert_eq!(say_busy(&idle, None, "", NOW).unwrap(), Decision::Nothing);
        // What can't be read counts as nothing, and is written over or taken away.
        let garbage = pod("StatefulSet", json!({BUSY_UNTIL: "soon"}));
        assert_eq!(texts(say_busy(&garbage, at(9), "", NOW)), said);
        assert_eq!(texts(say_busy(&garbage, None, "", NOW)), json!({BUSY_UNTIL: null}));
    }

    #[test]
    fn times_are_rounded_up_and_bad_ones_refused() {
        let time = |seconds, nanos| until(prost_types::Timestamp { seconds, nanos });
        assert_eq!(time(7, 0).unwrap(), UnixNanos(7 * SECOND));
        assert_eq!(time(7, 1).unwrap(), UnixNanos(8 * SECOND));
        for (seconds, nanos) in [(7, -1), (7, 1_000_000_000), (i64::MAX, 1), (i64::MAX, 0), (1 << 40, 0)] {
            assert_eq!(time(seconds, nanos).unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!(check_reason(&"x".repeat(257)).unwrap_err().code(), Code::InvalidArgument);
        check_reason(&"x".repeat(256)).unwrap();
    }

    #[test]
    fn a_pod_that_is_not_ours_is_refused() {
        let stranger: CachedPod =
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}})).unwrap();
        assert_eq!(say_busy(&stranger, at(9), "", NOW).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(say_busy(&stranger, None, "", NOW).unwrap(), Decision::Nothing);
    }
}
