//! Limits how often the lifecycle condition is written for its own sake.

use std::time::{Duration, Instant};

use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::{ConditionStatus, Explanation};
use podward_kube_util::CachedPod;

/// A shorter wait is not written for its own sake. The next write for another reason includes it, unless it turns the gate
/// True.
pub(super) const CONDITION_DELAY: Duration = Duration::from_secs(5);

/// As [`CONDITION_DELAY`], if the stored condition is wrong about whether the pod is in service.
const SERVICE_DELAY: Duration = Duration::from_secs(1);

/// As [`CONDITION_DELAY`], while a new pod waits for its containers. Most pods start within this time, and `Ready` says the
/// same.
const START_DELAY: Duration = Duration::from_secs(60);

/// The longest delay between two messages for the same wait. The delay starts at [`CONDITION_DELAY`] and doubles,
/// because a hook may report a countdown, and each of its messages would cause a write.
const MAX_MESSAGE_DELAY: Duration = Duration::from_secs(30);

/// Identifies a wait: the status and the reason of the condition, without its message.
pub(super) type ConditionWait = (ConditionStatus, &'static str);

/// What the stored condition of a pod reports, if it is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredWait {
    /// The pod is in service and it is not, or the other way round.
    WrongService,
    /// Nothing: the pod is new, was not operated on, and waits for its containers.
    Starts,
    /// The present wait, with another message.
    OtherMessage,
    /// Anything else.
    Other,
}

impl StoredWait {
    /// Returns what the stored condition of `pod` reports, compared with `explanation`, which differs from it. A pod with
    /// the label `service-available` and without the condition reports that it is in service.
    pub(super) fn of(pod: &CachedPod, explanation: &Explanation) -> Self {
        let is_in_service = || pod.labels().contains_key(SERVICE_AVAILABLE).then_some(ConditionStatus::True);
        let told = pod.lifecycle_condition().map_or_else(is_in_service, |told| Some(told.status));
        if pod.has_condition_reason(explanation) {
            StoredWait::OtherMessage
        } else if told.is_some_and(|told| told != explanation.status) {
            StoredWait::WrongService
        } else if told.is_none() && explanation.waits_for_kubelet() && !was_operated_on(pod) {
            StoredWait::Starts
        } else {
            StoredWait::Other
        }
    }
}

/// Returns whether the gate of `pod` has changed later than a start takes: an operation has probably done it.
fn was_operated_on(pod: &CachedPod) -> bool {
    let facts = pod.view().facts;
    facts.gate_since.zip(facts.created_at).is_some_and(|(gate, created)| gate.since(created) > START_DELAY)
}

/// The wait that the condition of a pod does not report yet, and the one that was written last.
#[derive(Debug, Default)]
pub(super) struct ConditionThrottle {
    /// The present wait, and since when the stored condition is out of date. Other waits in between do not change the
    /// time: otherwise a pod whose waits change often would keep an old condition. The end of a start does.
    pending: Option<PendingWait>,
    written: Option<WrittenWait>,
}

#[derive(Debug)]
struct PendingWait {
    wait: ConditionWait,
    since: Instant,
    is_start: bool,
}

#[derive(Debug)]
struct WrittenWait {
    wait: ConditionWait,
    at: Instant,
    /// The number of earlier messages for this wait.
    before: u32,
}

impl ConditionThrottle {
    /// Records that the condition is stored with all of `wait`.
    pub(super) fn stored(&mut self, wait: ConditionWait) {
        self.forget_others(wait);
        self.pending = None;
    }

    /// Returns how long the stored condition may be out of date until `wait` is written, zero if it is due. `stored` is
    /// what the stored condition reports; with the same status and reason, it has another message.
    pub(super) fn due(&mut self, wait: ConditionWait, stored: StoredWait, now: Instant) -> Duration {
        self.forget_others(wait);
        let is_start = stored == StoredWait::Starts;
        let since = self.pending.as_ref().filter(|pending| pending.is_start == is_start);
        let since = since.map_or(now, |pending| pending.since);
        self.pending = Some(PendingWait { wait, since, is_start });
        let delay = match stored {
            StoredWait::WrongService => SERVICE_DELAY,
            StoredWait::Starts => START_DELAY,
            StoredWait::OtherMessage | StoredWait::Other => CONDITION_DELAY,
        };
        let delay = delay.saturating_sub(now.saturating_duration_since(since));
        let is_new_message = stored == StoredWait::OtherMessage;
        let pause = self.written.as_ref().filter(|_| is_new_message).map_or(Duration::ZERO, |written| {
            let pause = CONDITION_DELAY.saturating_mul(1 << written.before.min(10)).min(MAX_MESSAGE_DELAY);
            pause.saturating_sub(now.saturating_duration_since(written.at))
        });
        delay.max(pause)
    }

    /// Records that the pending wait is written.
    pub(super) fn written(&mut self, now: Instant) {
        if let Some(PendingWait { wait, .. }) = self.pending.take() {
            let before = self.written.take().map_or(0, |written| written.before.saturating_add(1));
            self.written = Some(WrittenWait { wait, at: now, before });
        }
    }

    /// Discards what was written of other waits.
    fn forget_others(&mut self, wait: ConditionWait) {
        self.written = self.written.take().filter(|written| written.wait == wait);
    }
}

#[cfg(test)]
mod tests {
    use podward_core::keys::{LIFECYCLE_CONDITION, SERVICE_READY_GATE};
    use serde_json::json;

    use super::StoredWait::{Other, OtherMessage, Starts, WrongService};
    use super::*;

    const HOOKS: ConditionWait = (ConditionStatus::False, "Hooks");
    const RULES: ConditionWait = (ConditionStatus::False, "Rules");

    #[test]
    fn a_short_wait_is_not_written() {
        let (mut throttle, start) = (ConditionThrottle::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.due(HOOKS, Other, at(0)), CONDITION_DELAY);
        assert_eq!(throttle.due(HOOKS, Other, at(3)), Duration::from_secs(2));
        throttle.stored(RULES);
        assert_eq!(throttle.due(RULES, Other, at(20)), CONDITION_DELAY, "a new wait");
        assert_eq!(throttle.due(RULES, Other, at(30)), Duration::ZERO);
    }

    #[test]
    fn what_a_pod_reports_without_a_condition_depends_on_its_label() {
        let told = |labels, condition: Option<&str>, status, reason| {
            let condition = condition
                .map(|status| json!({"type": LIFECYCLE_CONDITION, "status": status, "reason": "Hooks"}));
            let conditions: Vec<_> = condition.into_iter().collect();
            let pod = json!({"metadata": {"labels": labels}, "status": {"conditions": conditions}});
            let explanation = Explanation { status, reason, message: "waits".to_owned() };
            StoredWait::of(&serde_json::from_value(pod).unwrap(), &explanation)
        };
        let in_service = || json!({SERVICE_AVAILABLE: "1"});
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        assert_eq!(told(in_service(), None, no, "Hooks"), WrongService);
        assert_eq!(told(in_service(), None, yes, "InvalidAnnotation"), Other);
        assert_eq!(told(json!({}), None, no, "Hooks"), Other, "the pod enters service");
        assert_eq!(told(in_service(), Some("False"), no, "Rules"), Other);
        assert_eq!(told(in_service(), Some("False"), no, "Hooks"), OtherMessage);
        assert_eq!(told(json!({}), Some("False"), yes, "InService"), WrongService);
        assert_eq!(told(json!({}), None, no, "NotReady"), Starts);
        assert_eq!(told(json!({}), Some("False"), no, "NotReady"), Other);
        assert_eq!(told(in_service(), None, no, "NotReady"), WrongService, "its containers have failed");
    }

    #[test]
    fn a_pod_after_an_operation_is_not_new() {
        let stored = |gate_since: &str| {
            let gate =
                json!({"type": SERVICE_READY_GATE, "status": "True", "lastTransitionTime": gate_since});
            let pod = json!({
                "metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}, "status": {"conditions": [gate]},
            });
            let (status, reason) = (ConditionStatus::False, "NotReady");
            let explanation = Explanation { status, reason, message: "waits".to_owned() };
            StoredWait::of(&serde_json::from_value(pod).unwrap(), &explanation)
        };
        assert_eq!(stored("2026-01-01T10:00:02Z"), Starts);
        assert_eq!(stored("2026-01-01T10:02:00Z"), Other);
    }

    #[test]
    fn a_start_is_written_late_and_not_counted_to_the_next_wait() {
        let (mut throttle, start) = (ConditionThrottle::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.due(HOOKS, Starts, at(0)), START_DELAY);
        assert_eq!(throttle.due(HOOKS, Starts, at(30)), START_DELAY / 2);
        assert_eq!(throttle.due(RULES, Other, at(40)), CONDITION_DELAY);
        assert_eq!(throttle.due(RULES, Other, at(45)), Duration::ZERO);
    }

    #[test]
    fn waits_that_change_often_do_not_keep_an_old_condition() {
        let (mut throttle, start) = (ConditionThrottle::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, wait) in [(0, HOOKS), (2, RULES), (4, HOOKS)] {
            assert!(!throttle.due(wait, Other, at(second)).is_zero());
        }
        assert_eq!(throttle.due(RULES, Other, at(5)), Duration::ZERO);
    }

    #[test]
    fn a_condition_that_is_wrong_about_service_is_corrected_soon() {
        let (mut throttle, start) = (ConditionThrottle::default(), Instant::now());
        assert_eq!(throttle.due(RULES, WrongService, start), SERVICE_DELAY);
        assert_eq!(throttle.due(RULES, WrongService, start + SERVICE_DELAY), Duration::ZERO);
    }

    #[test]
    fn delays_between_messages_grow() {
        let (mut throttle, mut now) = (ConditionThrottle::default(), Instant::now());
        throttle.due(HOOKS, Other, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            throttle.written(now);
            let pause = throttle.due(HOOKS, OtherMessage, now);
            pauses.push(pause.as_secs());
            now += pause;
            assert_eq!(throttle.due(HOOKS, OtherMessage, now), Duration::ZERO);
        }
        assert_eq!(pauses, [5, 10, 20, 30, 30, 30]);
        throttle.written(now);
        throttle.due(RULES, Other, now);
        assert_eq!(
            throttle.due(HOOKS, OtherMessage, now),
            CONDITION_DELAY,
            "the delay starts again after another wait"
        );
    }
}
