//! Busy pods: no operation gets its permission before they are done or the maximum has passed, and none waits for ever.

mod costs;
mod interleavings;

use std::collections::BTreeMap;
use std::time::Duration;

use podward_core::busy::{BUSY_EVIDENCE, BusyChecks, BusyClaim, BusyLimits, REASON_LIMIT};
use podward_core::deletion::hold::{RecordOutcome, answer};
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{BUSY_LIMITS, BUSY_REASON, BUSY_UNTIL, CONTROL_LABEL, EVIDENCE, Stage};
use podward_core::rules::{CheckRequest, check_requests};
use podward_core::{
    CheckResult, Checks, ConditionStatus, NoRules, Objection, Pod, PodFacts, PodHooks, PodPlan, PodView,
    ReviewPolicy, UnixNanos, Writer, explain, plan, review,
};
use serde_json::{Value, json};

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_700_000_000;
const MOST: Duration = Duration::from_secs(100);

fn at(seconds: i64) -> UnixNanos {
    UnixNanos((START + seconds) * SECOND)
}

/// A pod in service that takes part in operations; seconds are counted from [`START`].
#[derive(Clone, Debug)]
struct Worker {
    labels: BTreeMap<String, String>,
    finalizers: Vec<String>,
    gate: ConditionStatus,
    until: Option<String>,
    reason: Option<String>,
    evidence: Option<String>,
}

impl Worker {
    fn new() -> Self {
        Worker {
            labels: BTreeMap::from([(CONTROL_LABEL.to_owned(), "true".to_owned())]),
            finalizers: Vec::new(),
            gate: ConditionStatus::True,
            until: None,
            reason: None,
            evidence: None,
        }
    }

    fn busy(mut self, until: i64, reason: &str) -> Self {
        self.until = Some(at(until).to_rfc3339());
        self.reason = Some(reason.to_owned());
        self
    }

    fn begin(&mut self, id: &str, now: UnixNanos) {
        self.labels.insert(Stage::Operating.key(id), now.to_string());
        self.labels.insert(Stage::OperationType.key(id), "update".to_owned());
    }

    fn has(&self, stage: Stage, id: &str) -> bool {
        self.labels.contains_key(&stage.key(id))
    }

    fn view(&self) -> PodView<'_> {
        PodView {
            labels: &self.labels,
            available_conditions: None,
            finalizers: &self.finalizers,
            has_gate: true,
            gate: Some(self.gate),
            ready: self.gate == ConditionStatus::True,
            terminating: false,
            facts: PodFacts {
                busy_until: self.until.as_deref(),
                busy_reason: self.reason.as_deref(),
                evidence: self.evidence.as_deref(),
                ..PodFacts::default()
            },
        }
    }

    /// What the controller does at `now`; gives its plan and how many operations it let go on although the pod is busy.
    fn look(&mut self, now: UnixNanos) -> (PodPlan, usize) {
        let (plan, overruns) = {
            let view = self.view();
            let checks = BusyChecks::new(&view, MOST, now, &NoRules);
            let mut plan = plan(&view, &PodHooks::none(), &checks, now);
            let overruns = checks.record(&view, &mut plan).len();
            plan.wake = checks.wake();
            (plan, overruns)
        };
        plan.labels.apply(&mut self.labels);
        self.gate = plan.gate.unwrap_or(self.gate);
        for (key, text) in &plan.annotations {
            assert_eq!(*key, EVIDENCE);
            self.evidence.clone_from(text);
        }
        (plan, overruns)
    }
}

#[test]
fn an_operation_waits_until_the_pod_is_done() {
    let mut worker = Worker::new().busy(30, "encoding 17");
    worker.begin("a", at(0));
    let (plan, _) = worker.look(at(0));
    assert_eq!(plan.wake, Some(at(30)), "a deadline, and nothing to be asked before");
    assert!(worker.has(Stage::PreCheck, "a") && !worker.has(Stage::PreChecked, "a"));
    assert_eq!(worker.gate, ConditionStatus::True, "the pod stays in service");
    assert!(worker.look(at(29)).0.is_empty());

    worker.until = None;
    worker.look(at(29));
    assert!(worker.has(Stage::PreChecked, "a"), "it said that it is done");
    assert_eq!(worker.evidence, None, "which is nothing for the record");
}

#[test]
fn the_requested_delay_is_respected() {
    let mut worker = Worker::new().busy(30, "");
    worker.begin("a", at(0));
    worker.look(at(0));
    assert_eq!(worker.look(at(30)).1, 0);
    assert!(worker.has(Stage::PreChecked, "a"));
}

#[test]
fn past_the_maximum_it_goes_on_and_that_is_on_record() {
    let mut worker = Worker::new().busy(5_000, "encoding 17");
    worker.begin("a", at(0));
    assert_eq!(worker.look(at(0)).0.wake, Some(at(100)));
    worker.until = Some(at(9_000).to_rfc3339());
    assert_eq!(worker.look(at(99)).0.wake, Some(at(100)), "renewals don't move it");
    assert_eq!(worker.look(at(100)).1, 1);
    assert!(worker.has(Stage::PreChecked, "a"));
    let evidence: Value = serde_json::from_str(worker.evidence.as_deref().unwrap()).unwrap();
    assert_eq!(evidence[BUSY_EVIDENCE]["level"], "TIMED_OUT");
    let detail = evidence[BUSY_EVIDENCE]["detail"].as_str().unwrap();
    assert!(detail.contains("operation a (update)") && detail.contains("encoding 17"), "{detail}");
    let (plan, overruns) = worker.look(at(101));
    assert!(plan.annotations.is_empty() && overruns == 0, "once: {plan:?}");

    // The next operation begins with a clean record, and waits anew.
    let mut next = Worker { evidence: worker.evidence, ..Worker::new() }.busy(130, "");
    next.begin("b", at(120));
    assert!(next.look(at(120)).0.annotations.is_empty());
    next.look(at(130));
    assert!(next.has(Stage::PreChecked, "b"));
    assert_eq!(next.evidence, None);
}

/// A rule that refuses late releases its grant, and the operation asks again.
#[test]
fn a_request_that_is_made_again_waits_no_longer() {
    let mut worker = Worker::new().busy(5_000, "");
    worker.begin("a", at(0));
    worker.look(at(0));
    let before = check_requests(&worker.labels);
    let again = |asked_at: &str, now| {
        CheckRequest { asked_at: asked_at.to_owned(), ..before[0].clone() }.asked_again_at(now)
    };
    worker.labels.insert(Stage::PreCheck.key("a"), again(&before[0].asked_at, at(99)));
    assert_ne!(check_requests(&worker.labels), before, "it is another request");
    assert_eq!(worker.look(at(99)).0.wake, Some(UnixNanos(at(100).0 + 1)));
    assert_eq!(worker.look(at(101)).1, 1);
    assert!(worker.has(Stage::PreChecked, "a"));

    for (asked_at, next) in [("1998", "1999"), ("1999", "1000"), ("1000", "1001")] {
        assert_eq!(again(asked_at, at(99)), next, "another time in the same microsecond");
    }
    for unusable in ["soon", "9223372036854775807", &at(99).to_string()] {
        assert_eq!(again(unusable, at(99)), at(99).to_string(), "{unusable}");
    }
}

#[test]
fn a_pod_that_is_busy_too_late_is_interrupted() {
    let mut worker = Worker::new();
    worker.begin("a", at(0));
    worker.look(at(0));
    assert!(worker.has(Stage::PreChecked, "a"));
    let mut worker = worker.busy(50, "");
    worker.look(at(1));
    assert!(worker.has(Stage::Operate, "a") || worker.has(Stage::Preparing, "a"));
    worker.begin("b", at(2));
    worker.look(at(2));
    assert!(!worker.has(Stage::PreChecked, "b"), "but what is announced from then on waits");
}

#[test]
fn times_of_announcement_that_cant_be_hold_nothing_up_for_ever() {
    for (announced, holds) in [
        ("1", false),
        ("", false),
        ("soon", false),
        ("-9223372036854775808", false),
        ("9223372036854775807", false),
    ] {
        let mut worker = Worker::new().busy(5_000, "");
        worker.begin("a", at(0));
        worker.labels.insert(Stage::PreCheck.key("a"), announced.to_owned());
        let view = worker.view();
        let checks = BusyChecks::new(&view, MOST, at(0), &NoRules);
        assert_eq!(checks.holds("a").is_some(), holds, "{announced:?}");
    }
    // A clock that is ahead a little is no reason to interrupt.
    let mut worker = Worker::new().busy(5_000, "");
    worker.begin("a", at(0));
    worker.labels.insert(Stage::PreCheck.key("a"), at(3).to_string());
    let view = worker.view();
    assert_eq!(BusyChecks::new(&view, MOST, at(0), &NoRules).wake(), Some(at(103)));
}

#[test]
fn reasons_of_other_checks_are_reported_too() {
    struct Full;
    impl Checks for Full {
        fn pre_check(&self, _: &str, _: &str) -> CheckResult {
            CheckResult::Wait("no room".to_owned())
        }
        fn post_check(&self, _: &str, _: &str) -> CheckResult {
            CheckResult::Pass
        }
        fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
            Vec::new()
        }
    }
    let mut worker = Worker::new().busy(30, "encoding");
    worker.begin("a", at(0));
    worker.labels.insert(Stage::PreCheck.key("a"), at(0).to_string());
    let view = worker.view();
    let told = explain(&view, &BusyChecks::new(&view, MOST, at(0), &Full), &[]);
    let (until, limit) = (at(30).to_rfc3339(), at(100).to_rfc3339());
    assert_eq!(
        told.message,
        format!(
            "operation a (update) waits for its pre-checks: busy until {until}: encoding; Podward waits until {limit} at the latest; also: no room"
        )
    );
    let full = BusyChecks::new(&view, MOST, at(30), &Full).pre_check("a", "update");
    assert_eq!(full, CheckResult::Wait("no room".to_owned()));
}

#[test]
fn an_unreadable_busy_annotation_is_reported_and_not_busy() {
    for text in ["", "soon", "1700000000", "2026-01-01", "9999-12-31T23:59:59Z"] {
        let mut worker = Worker { until: Some(text.to_owned()), ..Worker::new() };
        assert_eq!(BusyClaim::of(&worker.view()), BusyClaim::Unreadable(text));
        let told = explain(&worker.view(), &NoRules, &[]);
        assert_eq!((told.status, told.reason), (ConditionStatus::True, "InvalidAnnotation"));
        assert!(told.message.contains(&format!("{text:?}")), "{}", told.message);
        worker.begin("a", at(0));
        worker.look(at(0));
        assert!(worker.has(Stage::PreChecked, "a"), "{text:?}");
    }
    let long = "ü".repeat(REASON_LIMIT);
    let BusyClaim::Busy(work) = BusyClaim::parse(Some("2026-01-01T10:00:00Z"), Some(&long)) else { panic!() };
    assert!(work.reason.len() <= REASON_LIMIT);
}

fn pod(annotations: Value) -> Pod {
    let labels = json!({CONTROL_LABEL: "true"});
    let metadata =
        json!({"name": "web-0", "namespace": "shop", "labels": labels, "annotations": annotations});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

#[test]
fn unreadable_values_are_refused_at_admission() {
    let writer = Writer { username: "jane", groups: &[] };
    let denials = |old: &Pod, annotations: Value| {
        review(Some(old), &pod(annotations), &writer, &ReviewPolicy::default()).denials
    };
    let old = pod(json!({}));
    assert!(denials(&old, json!({BUSY_UNTIL: "2026-01-01T10:00:00Z", BUSY_REASON: "encoding"})).is_empty());
    let denied = denials(&old, json!({BUSY_UNTIL: "tomorrow"}));
    assert!(
        denied.len() == 1 && denied[0].contains(BUSY_UNTIL) && denied[0].contains("tomorrow"),
        "{denied:?}"
    );
    let denied = denials(&old, json!({BUSY_REASON: "x".repeat(REASON_LIMIT + 1)}));
    assert!(denied.len() == 1 && denied[0].contains(BUSY_REASON), "{denied:?}");
    let wrong = json!({BUSY_UNTIL: "tomorrow"});
    assert!(
        denials(&pod(wrong.clone()), wrong).is_empty(),
        "what was there before is not held against a write"
    );
}

#[test]
fn the_answer_to_a_delete_of_a_busy_pod_has_time_and_reason() {
    let busy = json!({BUSY_UNTIL: at(30).to_rfc3339(), BUSY_REASON: "encoding 17"});
    let mut pod = pod(busy);
    let request = DeletionRequest::new(DeletionKind::Evict, "drain", at(0));
    let expected = format!("busy until {}: encoding 17", at(30).to_rfc3339());
    let told = |pod: &Pod| answer(pod, DeletionKind::Evict, RecordOutcome::Recorded(&request));
    assert!(told(&pod).contains(&expected), "{}", told(&pod));

    let mut labels = pod.metadata.labels.clone().unwrap();
    labels.insert(Stage::Operating.key("pod-delete"), "1".to_owned());
    labels.insert(Stage::OperationType.key("pod-delete"), "delete".to_owned());
    pod.metadata.labels = Some(labels.clone());
    assert!(told(&pod).contains(&expected), "{}", told(&pod));
    // The condition may be of a time before it said so, or of an earlier one.
    let condition = |message: &str| {
        serde_json::from_value(json!([
            {"type": "podward.io/lifecycle", "status": "False", "message": message},
        ]))
        .unwrap()
    };
    for stale in
        ["the pod is in service", "operation pod-delete (delete) waits for its pre-checks: busy until 1970"]
    {
        pod.status.conditions = Some(condition(stale));
        assert!(told(&pod).contains(&expected), "{}", told(&pod));
    }
    pod.status.conditions =
        Some(condition("operation pod-delete (delete) waits for its pre-checks: no room"));
    assert!(told(&pod).contains("no room"), "the maximum has passed: {}", told(&pod));
    labels.insert(Stage::PreChecked.key("pod-delete"), "1".to_owned());
    pod.metadata.labels = Some(labels);
    assert!(!told(&pod).contains("busy"), "{}", told(&pod));
}

#[test]
fn the_maximum_can_be_read_back_from_the_annotation() {
    let mut worker = Worker::new().busy(150, "encoding 17");
    for (id, announced) in [("a", 0), ("b", 10)] {
        worker.begin(id, at(announced));
        worker.labels.insert(Stage::PreCheck.key(id), at(announced).to_string());
    }
    let limits = |now| BusyChecks::new(&worker.view(), MOST, now, &NoRules).limits();
    let (key, text) = limits(at(20)).change(&worker.view()).unwrap();
    assert_eq!(key, BUSY_LIMITS);
    let mut view = worker.view();
    view.facts.busy_limits = text.as_deref();
    assert_eq!(limits(at(20)).change(&view), None, "it is already stored");
    let stored = BusyLimits::of(&view);
    assert_eq!(
        (stored.get("a"), stored.get("b"), stored.get("c")),
        (Some(at(100)), Some(at(110)), None),
        "{text:?}"
    );
    // An operation whose maximum has passed does not wait any more, and the last one removes the annotation.
    assert_eq!((limits(at(105)).get("a"), limits(at(105)).get("b")), (None, Some(at(110))));
    assert_eq!(limits(at(110)).change(&view), Some((BUSY_LIMITS, None)));
    assert_eq!(limits(at(150)).change(&view), Some((BUSY_LIMITS, None)));
    // A program that does not know the maximum knows no limits, and unreadable ones count as unknown.
    let unknown = BusyChecks::without_maximum(&view, at(20), &NoRules).limits();
    assert_eq!(unknown, BusyLimits::default());
    for text in ["", "soon", "[]", r#"{"a":"soon"}"#, r#"{"a":1}"#] {
        view.facts.busy_limits = Some(text);
        assert_eq!(BusyLimits::of(&view), BusyLimits::default(), "{text}");
    }
}
