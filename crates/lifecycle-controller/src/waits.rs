//! Operations that rules or the pod's own work keep waiting: people are told by an event, once for each operation and cause, when it has
//! lasted as long as a condition waits before it is written. What is said later is in the condition.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use podward_core::busy::BusyChecks;
use podward_core::rules::{Asking, CheckStage, askings};
use podward_core::{CheckResult, Checks, NoRules, Operations};

use crate::cached_pod::{CachedPod, PodKey};
use crate::events::Draft;
use crate::reconcile::{Context, now};
use crate::rules::PodRules;
use crate::telling::PATIENCE;

/// Who keeps an operation waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Rules,
    Busy,
}

/// An operation that is in a check, and somebody who keeps it there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) stage: CheckStage,
    pub(crate) operation: String,
    pub(crate) cause: Cause,
}

/// The waits of a pod, as long as their operations are in their checks.
#[derive(Debug, Default)]
pub(crate) struct Waits(BTreeMap<Wait, Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// `None` while it doesn't wait for this.
    since: Option<Instant>,
    is_told: bool,
}

impl Waits {
    /// Takes down what waits `at` this moment: `present`, of all that is `asked`. Gives those that people are to be told of, and when to
    /// look again at the others.
    fn follow(&mut self, asked: &[Asking], present: Vec<Wait>, at: Instant) -> (Vec<Wait>, Option<Duration>) {
        let is_asked = |wait: &Wait| {
            asked.iter().any(|asking| asking.stage == wait.stage && asking.operation == wait.operation)
        };
        self.0.retain(|wait, _| is_asked(wait));
        for (wait, seen) in &mut self.0 {
            seen.since = seen.since.filter(|_| present.contains(wait));
        }
        let (mut due, mut next) = (Vec::new(), None);
        for wait in present {
            let seen = self.0.entry(wait.clone()).or_default();
            let since = *seen.since.get_or_insert(at);
            let left = PATIENCE.saturating_sub(at.saturating_duration_since(since));
            if seen.is_told {
                continue;
            }
            if left.is_zero() {
                seen.is_told = true;
                due.push(wait);
            } else {
                next = Some(next.map_or(left, |next: Duration| next.min(left)));
            }
        }
        (due, next)
    }

    /// Whether an operation waits because the pod is busy.
    pub(crate) fn are_for_work(&self) -> bool {
        self.0.iter().any(|(wait, seen)| wait.cause == Cause::Busy && seen.since.is_some())
    }
}

/// Tells people of waits of `pod` that have lasted. `rules` is what rules said to it. Gives when to look again.
pub(crate) fn tell(context: &Context, pod: &CachedPod, rules: &PodRules) -> Option<Duration> {
    let view = pod.view();
    let asked = if view.terminating { Vec::new() } else { askings(view.labels) };
    let work = BusyChecks::new(&view, context.voices.max_busy, now(), &NoRules);
    let present = present(&asked, rules, &work);
    let follow = |waits: &mut Waits| waits.follow(&asked, present, Instant::now());
    let (due, next) = context.tracker.waits(&pod.key(), &context.metrics, follow)?;
    let words = |asking: &Asking| context.voices.rules.words(&pod.key().namespace, rules, asking);
    for wait in due {
        if let Some(draft) = draft(pod, &wait, &asked, &work, words) {
            context.events.normal(pod, draft);
        }
    }
    next
}

/// What of `asked` waits now.
fn present(asked: &[Asking], rules: &PodRules, work: &BusyChecks<'_>) -> Vec<Wait> {
    let mut present = Vec::new();
    for asking in asked {
        let wait = |cause| Wait { stage: asking.stage, operation: asking.operation.clone(), cause };
        if rules.refuse(asking) {
            present.push(wait(Cause::Rules));
        }
        if asking.stage == CheckStage::PreCheck && work.holds(&asking.operation).is_some() {
            present.push(wait(Cause::Busy));
        }
    }
    present
}

/// The event of a wait; `words` says what rules say.
fn draft(
    pod: &CachedPod,
    wait: &Wait,
    asked: &[Asking],
    work: &BusyChecks<'_>,
    words: impl Fn(&Asking) -> String,
) -> Option<Draft> {
    let Wait { stage, operation, cause } = wait;
    let operations = Operations::parse(pod.view().labels);
    let operation_type = operations.type_of(operation).unwrap_or_default();
    let (reason, why) = match cause {
        Cause::Rules => {
            let is_it = |asking: &&Asking| asking.stage == *stage && asking.operation == *operation;
            ("RuleRefuses", words(asked.iter().find(is_it)?))
        }
        Cause::Busy => match work.pre_check(operation, &operation_type) {
            CheckResult::Wait(busy) => (
                "PodBusy",
                format!(
                    "the pod is {busy}; it goes on when the pod says that it is done, or that has passed"
                ),
            ),
            CheckResult::Pass => return None,
        },
    };
    let (stage, PodKey { namespace, name }) = (stage.as_str(), pod.key());
    let note = format!(
        "operation {operation} ({operation_type}) waits in its {stage}: {why}. How it stands: kubectl podward why {name} -n {namespace}"
    );
    Some(Draft { reason, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(operation: &str) -> Asking {
        Asking { stage: CheckStage::PreCheck, operation: operation.to_owned(), asked_at: "1".to_owned() }
    }

    fn wait(operation: &str, cause: Cause) -> Wait {
        Wait { stage: CheckStage::PreCheck, operation: operation.to_owned(), cause }
    }

    #[test]
    fn a_wait_is_told_once_and_only_when_it_lasts() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let (asked, rules) = ([asking("a"), asking("b")], wait("a", Cause::Rules));
        assert_eq!(waits.follow(&asked, vec![rules.clone()], start), (vec![], Some(PATIENCE)));
        let half = start + PATIENCE / 2;
        let both = || vec![rules.clone(), wait("a", Cause::Busy)];
        assert_eq!(waits.follow(&asked, both(), half), (vec![], Some(PATIENCE / 2)));
        assert!(waits.are_for_work());
        let (due, next) = waits.follow(&asked, both(), start + PATIENCE);
        assert_eq!((due, next), (vec![rules.clone()], Some(PATIENCE / 2)));
        // Neither while it goes on, nor when rules refuse again.
        assert_eq!(waits.follow(&asked, vec![], start + PATIENCE), (vec![], None));
        assert!(!waits.are_for_work());
        let late = start + 9 * PATIENCE;
        assert_eq!(waits.follow(&asked, vec![rules.clone()], late), (vec![], None));
        // The next operation is another one, of the same id too.
        assert_eq!(waits.follow(&[asking("b")], vec![], late), (vec![], None));
        assert_eq!(waits.follow(&asked, vec![rules], late), (vec![], Some(PATIENCE)));
    }

    #[test]
    fn a_wait_that_was_interrupted_begins_anew() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let (asked, work) = ([asking("a")], wait("a", Cause::Busy));
        waits.follow(&asked, vec![work.clone()], start);
        waits.follow(&asked, vec![], start + PATIENCE / 2);
        let (due, next) = waits.follow(&asked, vec![work], start + PATIENCE);
        assert_eq!((due, next), (vec![], Some(PATIENCE)));
    }

    #[test]
    fn a_busy_pod_is_told_of_with_until_when_and_why() {
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
        let view = pod.view();
        let at = |second: i64| {
            let now = podward_core::UnixNanos(second * 1_000_000_000);
            BusyChecks::new(&view, Duration::from_secs(100), now, &NoRules)
        };
        let asked = askings(view.labels);
        assert_eq!(present(&asked, &PodRules::default(), &at(61)), vec![]);
        let found = present(&asked, &PodRules::default(), &at(20));
        assert_eq!(found, [wait("a", Cause::Busy)]);
        let told = draft(&pod, &found[0], &asked, &at(20), |_| String::new()).unwrap();
        assert_eq!(told.reason, "PodBusy");
        assert_eq!(
            told.note,
            "operation a (update) waits in its PreCheck: the pod is busy until 1970-01-01T00:01:00Z: encoding 17; waited for until \
             1970-01-01T00:01:50Z at most; it goes on when the pod says that it is done, or that has passed. How it stands: kubectl \
             podward why web-0 -n shop"
        );
        let told =
            draft(&pod, &wait("a", Cause::Rules), &asked, &at(20), |_| "rule r says no".to_owned()).unwrap();
        assert!(
            told.reason == "RuleRefuses" && told.note.contains("PreCheck: rule r says no. How"),
            "{told:?}"
        );
    }
}
