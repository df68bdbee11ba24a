//! Events about operations that wait for rules or for a busy pod: one event per operation and cause, once the wait has
//! lasted as long as a condition waits before it is written. Later changes of the wait are in the condition.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use podward_core::busy::BusyChecks;
use podward_core::rules::{CheckRequest, CheckStage, check_requests};
use podward_core::{CheckResult, Checks, NoRules, Operations, UnixNanos};

use podward_kube_util::{CachedPod, EventDraft, PodKey, now};
use podward_rules::PodRules;

use super::condition_throttle::CONDITION_DELAY;

/// The cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitCause {
    Rules,
    Busy,
}

/// A wait of an operation in a check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OperationWait {
    stage: CheckStage,
    operation: String,
    cause: WaitCause,
}

/// The waits of a pod. A wait is kept as long as its operation is in the check.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<OperationWait, WaitState>);

#[derive(Debug, Default)]
struct WaitState {
    /// `None` while the operation does not wait for this cause.
    since: Option<Instant>,
    is_reported: bool,
}

impl Waits {
    /// Updates the waits with those that are present `at` a time. Returns the waits to report now, and the delay until
    /// the next one.
    pub(super) fn update(
        &mut self,
        waiting: &Waiting<'_>,
        at: Instant,
    ) -> (Vec<OperationWait>, Option<Duration>) {
        self.follow(&waiting.requests, waiting.present(), at)
    }

    fn follow(
        &mut self,
        requests: &[CheckRequest],
        present: Vec<OperationWait>,
        at: Instant,
    ) -> (Vec<OperationWait>, Option<Duration>) {
        let is_requested = |wait: &OperationWait| {
            requests.iter().any(|request| request.stage == wait.stage && request.operation == wait.operation)
        };
        self.0.retain(|wait, _| is_requested(wait));
        for (wait, state) in &mut self.0 {
            state.since = state.since.filter(|_| present.contains(wait));
        }
        let (mut due, mut next) = (Vec::new(), None);
        for wait in present {
            let state = self.0.entry(wait.clone()).or_default();
            let since = *state.since.get_or_insert(at);
            let left = CONDITION_DELAY.saturating_sub(at.saturating_duration_since(since));
            if state.is_reported {
                continue;
            }
            if left.is_zero() {
                state.is_reported = true;
                due.push(wait);
            } else {
                next = next.into_iter().chain([left]).min();
            }
        }
        (due, next)
    }

    /// Returns true if an operation waits because the pod is busy.
    pub(super) fn include_busy(&self) -> bool {
        self.0.iter().any(|(wait, state)| wait.cause == WaitCause::Busy && state.since.is_some())
    }
}

/// The checks that the operations of a pod are in.
pub(super) struct Waiting<'a> {
    pod: &'a CachedPod,
    requests: Vec<CheckRequest>,
    rules: &'a PodRules,
    busy: BusyChecks<'a>,
}

impl<'a> Waiting<'a> {
    /// Returns the checks of `pod`. `rules` are the results of its rules.
    pub(super) fn of(pod: &'a CachedPod, rules: &'a PodRules, max_busy: Duration) -> Self {
        Self::at(pod, rules, max_busy, now())
    }

    fn at(pod: &'a CachedPod, rules: &'a PodRules, max_busy: Duration, now: UnixNanos) -> Self {
        let view = pod.view();
        let requests = if view.terminating { Vec::new() } else { check_requests(view.labels) };
        Waiting { pod, requests, rules, busy: BusyChecks::new(&view, max_busy, now, &NoRules) }
    }

    /// Returns the present waits.
    fn present(&self) -> Vec<OperationWait> {
        let mut present = Vec::new();
        for request in &self.requests {
            let wait =
                |cause| OperationWait { stage: request.stage, operation: request.operation.clone(), cause };
            if self.rules.refuse(request) {
                present.push(wait(WaitCause::Rules));
            }
            if request.stage == CheckStage::PreCheck && self.busy.holds(&request.operation).is_some() {
                present.push(wait(WaitCause::Busy));
            }
        }
        present
    }

    /// Returns the event for `wait`, or `None` if the wait has ended. `refusal` returns the reason of the rules.
    pub(super) fn event(
        &self,
        wait: &OperationWait,
        refusal: impl Fn(&CheckRequest) -> String,
    ) -> Option<EventDraft> {
        let OperationWait { stage, operation, cause } = wait;
        let operations = Operations::parse(self.pod.labels());
        let operation_type = operations.type_of(operation).unwrap_or_default();
        let (reason, why) = match cause {
            WaitCause::Rules => {
                let is_it =
                    |request: &&CheckRequest| request.stage == *stage && request.operation == *operation;
                ("RuleRefuses", refusal(self.requests.iter().find(is_it)?))
            }
            WaitCause::Busy => match self.busy.pre_check(operation, &operation_type) {
                CheckResult::Wait(busy) => (
                    "PodBusy",
                    format!(
                        "the pod is {busy}; it proceeds when the pod reports that it is done, or at that time"
                    ),
                ),
                CheckResult::Pass => return None,
            },
        };
        let (stage, PodKey { namespace, name }) = (stage.as_str(), self.pod.key());
        let note = format!(
            "operation {operation} ({operation_type}) waits in its {stage}: {why}. Current state: kubectl podward why {name} -n {namespace}"
        );
        Some(EventDraft { reason, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_request(operation: &str) -> CheckRequest {
        CheckRequest {
            stage: CheckStage::PreCheck,
            operation: operation.to_owned(),
            asked_at: "1".to_owned(),
        }
    }

    fn wait(operation: &str, cause: WaitCause) -> OperationWait {
        OperationWait { stage: CheckStage::PreCheck, operation: operation.to_owned(), cause }
    }

    #[test]
    fn a_wait_is_reported_once_and_only_if_it_lasts() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let (asked, rules) = ([check_request("a"), check_request("b")], wait("a", WaitCause::Rules));
        assert_eq!(waits.follow(&asked, vec![rules.clone()], start), (vec![], Some(CONDITION_DELAY)));
        let half = start + CONDITION_DELAY / 2;
        let both = || vec![rules.clone(), wait("a", WaitCause::Busy)];
        assert_eq!(waits.follow(&asked, both(), half), (vec![], Some(CONDITION_DELAY / 2)));
        assert!(waits.include_busy());
        let (due, next) = waits.follow(&asked, both(), start + CONDITION_DELAY);
        assert_eq!((due, next), (vec![rules.clone()], Some(CONDITION_DELAY / 2)));
        // Neither while it goes on, nor when rules refuse again.
        assert_eq!(waits.follow(&asked, vec![], start + CONDITION_DELAY), (vec![], None));
        assert!(!waits.include_busy());
        let late = start + 9 * CONDITION_DELAY;
        assert_eq!(waits.follow(&asked, vec![rules.clone()], late), (vec![], None));
        // The next operation is another one, of the same id too.
        assert_eq!(waits.follow(&[check_request("b")], vec![], late), (vec![], None));
        assert_eq!(waits.follow(&asked, vec![rules], late), (vec![], Some(CONDITION_DELAY)));
    }

    #[test]
    fn an_interrupted_wait_starts_again() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let (asked, work) = ([check_request("a")], wait("a", WaitCause::Busy));
        waits.follow(&asked, vec![work.clone()], start);
        waits.follow(&asked, vec![], start + CONDITION_DELAY / 2);
        let (due, next) = waits.follow(&asked, vec![work], start + CONDITION_DELAY);
        assert_eq!((due, next), (vec![], Some(CONDITION_DELAY)));
    }

    #[test]
    fn the_event_of_a_busy_pod_has_the_time_and_the_reason() {
        let pod: CachedPod = serde_json::from_value(serde_json::json!({"metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u",
            "labels": {
                "operating.podopslifecycle.kusionstack.io/a": "1",
                "operation-type.podopslifecycle.kusionstack.io/a": "update",
                "pre-check.podopslifecycle.kusionstack.io/a": "10000000000",
            },
            "annotations": {"podward.io/busy-until": "1970-01-01T00:01:00Z", "podward.io/busy-reason": "encoding 17"},
        }}))
        .unwrap();
        let rules = PodRules::default();
        let at = |second: i64| {
            let now = UnixNanos(second * 1_000_000_000);
            Waiting::at(&pod, &rules, Duration::from_secs(100), now)
        };
        assert_eq!(at(61).present(), vec![]);
        let found = at(20).present();
        assert_eq!(found, [wait("a", WaitCause::Busy)]);
        let event = at(20).event(&found[0], |_| String::new()).unwrap();
        assert_eq!(event.reason, "PodBusy");
        assert_eq!(
            event.note,
            "operation a (update) waits in its PreCheck: the pod is busy until 1970-01-01T00:01:00Z: encoding 17; Podward waits until \
             1970-01-01T00:01:50Z at the latest; it proceeds when the pod reports that it is done, or at that time. Current state: \
             kubectl podward why web-0 -n shop"
        );
        let event = at(20).event(&wait("a", WaitCause::Rules), |_| "rule r refuses".to_owned()).unwrap();
        assert!(
            event.reason == "RuleRefuses" && event.note.contains("PreCheck: rule r refuses. Current"),
            "{event:?}"
        );
    }
}
