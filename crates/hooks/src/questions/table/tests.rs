mod attaching;
mod operation_types;

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::{
    DeadlinePolicy, Evidence, EvidenceLevel, FailurePolicy, GateTiming, Hook, Selector,
};
use serde_json::json;

use super::*;
use crate::questions::failure::CallFailure;
use crate::questions::reply::HookReply;
use crate::registration::registered::{HookConnection, HookEndpoint};

fn pod(uid: &str) -> Arc<CachedPod> {
    let metadata = json!({"name": format!("pod-{uid}"), "namespace": "shop", "uid": uid});
    Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
}

fn question(hook: &str, since: i64) -> HookQuestion {
    HookQuestion {
        hook: hook.to_owned(),
        phase: HookPhase::Prepare,
        operations: Vec::new(),
        since: UnixNanos(since),
        deadline: UnixNanos(since + 1),
    }
}

fn question_in(phase: HookPhase, since: i64) -> HookQuestion {
    HookQuestion { phase, ..question("lb", since) }
}

fn registered(name: &str, failure_policy: FailurePolicy, max_concurrent_calls: usize) -> Arc<RegisteredHook> {
    let hook = Hook {
        name: name.to_owned(),
        pod_selector: Selector::everything(),
        namespace_selector: Selector::everything(),
        phases: vec![HookPhase::Prepare],
        operation_types: Vec::new(),
        order: 0,
        deadline_nanoseconds: 1,
        deadline_policy: DeadlinePolicy::Hold,
        failure_policy,
        post_check_rejection: podward_core::PostCheckRejection::Hold,
        prepare_timing: GateTiming::AfterGate,
        complete_timing: GateTiming::BeforeGate,
    };
    let endpoint = HookEndpoint {
        url: "https://lb:1".to_owned(),
        ca_certificates: String::new(),
        server_name: "lb".to_owned(),
        is_guarded: false,
    };
    Arc::new(RegisteredHook {
        hook,
        connection: HookConnection::Endpoint(endpoint),
        max_concurrent_calls,
        call_timeout: Duration::from_secs(1),
    })
}

fn done() -> Result<HookReply, CallFailure> {
    Ok(HookReply::Done(Evidence { level: EvidenceLevel::Proven, detail: "seen".to_owned() }))
}

fn refused() -> Result<HookReply, CallFailure> {
    Err(CallFailure::connection("refused"))
}

/// A table and a clock.
struct Fixture {
    table: QuestionTable,
    now: Instant,
}

impl Fixture {
    fn new(hooks: &[Arc<RegisteredHook>]) -> Self {
        let mut table = QuestionTable::new(TableOutput::default());
        for hook in hooks {
            table.register(hook);
        }
        Fixture { table, now: Instant::now() }
    }

    fn with(name: &str) -> Self {
        Fixture::new(&[registered(name, FailurePolicy::Fail, 64)])
    }

    fn ask(&mut self, uid: &str, questions: &[HookQuestion]) {
        self.table.ask(&pod(uid), questions, self.now);
    }

    fn call(&mut self, hook: &str) -> Option<HookCall> {
        match self.table.next(hook, self.now) {
            NextStep::Call(call) => Some(*call),
            NextStep::Probe => panic!("a probe"),
            NextStep::Wait(_) => None,
        }
    }

    fn all_calls(&mut self, hook: &str) -> Vec<HookCall> {
        std::iter::from_fn(|| self.call(hook)).collect()
    }

    fn end(&mut self, hook: &str, call: &HookCall, result: Result<HookReply, CallFailure>) {
        self.table.ended(hook, (call.id, call.attempt), Some(result), Duration::from_millis(5), self.now);
    }

    fn answer(&self, uid: &str, hook: &str) -> Option<HookAnswer> {
        self.table.answer(uid, &question(hook, 1))
    }

    fn withhold_unless_asked(&mut self, uid: &str, phase: HookPhase) -> bool {
        self.table.withhold_unless_asked(uid, "lb", phase, self.now)
    }

    fn woken(&self) -> Vec<String> {
        std::iter::from_fn(|| self.table.out.pods.try_next()).map(|pod| pod.name).collect()
    }

    /// Goes on to when the driver of `hook` would look again.
    fn skip_pause(&mut self, hook: &str) -> Duration {
        let NextStep::Wait(Some(until)) = self.table.next(hook, self.now) else {
            panic!("nothing is planned")
        };
        let pause = until.saturating_duration_since(self.now);
        self.now = until;
        pause
    }
}

#[test]
fn a_question_is_asked_once_and_its_answer_wakes_the_pod() {
    let mut fixture = Fixture::with("lb");
    assert_eq!(fixture.answer("u", "lb"), None, "not asked");
    fixture.ask("u", &[question("lb", 1), question("lb", 1)]);
    assert_eq!(fixture.answer("u", "lb"), Some(HookAnswer::Open { message: String::new() }));
    let call = fixture.call("lb").unwrap();
    assert!(fixture.withhold_unless_asked("u", HookPhase::Prepare), "it is called");
    assert_eq!((call.request.attempt, call.request.question_id.as_str()), (1, "u/lb/PREPARE/1"));
    fixture.ask("u", &[question("lb", 1)]);
    assert!(fixture.call("lb").is_none(), "it is in flight");
    fixture.end("lb", &call, done());
    assert_eq!(fixture.woken(), ["pod-u"]);
    assert!(
        matches!(fixture.answer("u", "lb"), Some(HookAnswer::Done(evidence)) if evidence.detail == "seen")
    );
    fixture.ask("u", &[question("lb", 1)]);
    assert!(fixture.call("lb").is_none(), "it is answered");
    assert!(fixture.withhold_unless_asked("u", HookPhase::Prepare), "the answer has had no effect");
    assert!(
        !fixture.withhold_unless_asked("u", HookPhase::Complete)
            && !fixture.withhold_unless_asked("v", HookPhase::Prepare)
    );
    fixture.ask("u", &[]);
    assert!(!fixture.withhold_unless_asked("u", HookPhase::Prepare));
}

/// Otherwise a pod that finishes would be added by a hook that is never asked to forget it.
#[test]
fn a_hook_that_was_not_called_is_not_called_until_the_caller_has_written() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    assert!(!fixture.withhold_unless_asked("u", HookPhase::Prepare));
    assert!(fixture.call("lb").is_none());
    // The caller has not written after all.
    assert_eq!(fixture.skip_pause("lb"), Duration::from_secs(30));
    assert!(fixture.call("lb").is_some());
    assert!(fixture.withhold_unless_asked("u", HookPhase::Prepare));
}

/// Otherwise pods would wait for a hook that cannot be reached and knows nothing of them.
#[test]
fn a_hook_without_a_connection_was_not_asked() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    let call = fixture.call("lb").unwrap();
    assert!(fixture.withhold_unless_asked("u", HookPhase::Prepare), "it may have arrived");
    fixture.end("lb", &call, Err(CallFailure::connection("refused")));
    assert!(!fixture.withhold_unless_asked("u", HookPhase::Prepare));
    fixture.skip_pause("lb");
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, Err(CallFailure::answer("timeout")));
    assert!(fixture.withhold_unless_asked("u", HookPhase::Prepare));
}

#[test]
fn a_hook_that_is_reached_again_is_not_called_before_the_caller_has_written() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, refused());
    fixture.table.connection("lb", refused().map(drop), fixture.now);
    assert!(!fixture.withhold_unless_asked("u", HookPhase::Prepare));
    fixture.table.connection("lb", Ok(()), fixture.now);
    assert!(fixture.call("lb").is_none());
    assert_eq!(fixture.skip_pause("lb"), Duration::from_secs(30));
    assert!(fixture.call("lb").is_some(), "the caller has not written after all");
}

#[test]
fn questions_that_are_not_asked_any_more_are_cancelled_and_forgotten() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    fixture.ask("v", &[question("lb", 1)]);
    let (first, second) = (fixture.call("lb").unwrap(), fixture.call("lb").unwrap());
    fixture.ask("u", &[question("lb", 2)]);
    assert!(first.cancelled.is_cancelled() && !second.cancelled.is_cancelled());
    let other = fixture.call("lb").unwrap();
    assert_eq!(other.request.question_id, "u/lb/PREPARE/2");
    fixture.end("lb", &first, done());
    assert_eq!(fixture.answer("u", "lb"), None, "an answer that came too late is none");
    fixture.ask("u", &[]);
    fixture.table.forget("v", fixture.now);
    assert!(other.cancelled.is_cancelled() && second.cancelled.is_cancelled());
    assert!(fixture.table.questions.is_empty() && fixture.table.pods.is_empty());
    assert_eq!(fixture.table.hooks["lb"].open, 0);
    fixture.table.deregister("lb");
    assert!(fixture.table.hooks.is_empty());
}

#[test]
fn pending_and_rejected_requests_are_repeated_after_their_delay() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    let pending = || HookReply::Pending { message: "3 sessions".to_owned(), retry: Duration::from_secs(20) };
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, Ok(pending()));
    assert_eq!(fixture.woken(), ["pod-u"]);
    let pause = fixture.skip_pause("lb");
    assert!(pause >= Duration::from_secs(20) && pause <= Duration::from_secs(22), "{pause:?}");
    let call = fixture.call("lb").unwrap();
    assert_eq!(call.attempt, 2);
    fixture.end("lb", &call, Ok(pending()));
    assert!(fixture.woken().is_empty(), "nothing new");
    fixture.skip_pause("lb");
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, Ok(HookReply::Rejected { reason: "no".to_owned(), retry: None }));
    assert_eq!(fixture.answer("u", "lb"), Some(HookAnswer::Rejected { reason: "no".to_owned() }));
    let pause = fixture.skip_pause("lb");
    assert!(pause >= Duration::from_secs(1) && pause < Duration::from_secs(2), "{pause:?}");
}

#[test]
fn a_thousand_pods_cost_a_dead_hook_a_few_probes_and_another_hook_nothing() {
    let hooks = [registered("dead", FailurePolicy::Fail, 64), registered("fast", FailurePolicy::Fail, 64)];
    let mut fixture = Fixture::new(&hooks);
    for index in 0..1000 {
        fixture.ask(&format!("{index:03}"), &[question("dead", 1), question("fast", 1)]);
    }
    let mut probes = 0;
    for round in 0..50 {
        let calls = fixture.all_calls("dead");
        assert!(calls.len() <= if round == 0 { 64 } else { 1 }, "round {round}: {} calls", calls.len());
        probes += if round == 0 { 0 } else { calls.len() };
        // Meanwhile the other hook answers as many as it takes, each time.
        let fast = fixture.all_calls("fast");
        assert_eq!(fast.len(), 64.min(1000 - 64 * round.min(15)) * usize::from(round < 16), "round {round}");
        fast.iter().for_each(|call| fixture.end("fast", call, done()));
        calls.iter().for_each(|call| fixture.end("dead", call, refused()));
        fixture.skip_pause("dead");
    }
    assert!(probes > 40, "{probes}");
    let reported = fixture.answer("999", "dead");
    let words = "it can't be reached: refused".to_owned();
    assert_eq!(reported, Some(HookAnswer::Open { message: words }), "also who was never asked about");
    assert!(fixture.woken().contains(&"pod-999".to_owned()));

    // It comes back: one probe, then everything that waits, in the order of the line.
    let mut answered = Vec::new();
    while answered.len() < 1000 {
        let calls = fixture.all_calls("dead");
        assert!(!calls.is_empty(), "after {}", answered.len());
        assert!(calls.len() == 1 || !answered.is_empty(), "first a probe");
        for call in &calls {
            fixture.end("dead", call, done());
            answered.push(call.request.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default());
        }
    }
    answered.sort();
    answered.dedup();
    assert_eq!(answered.len(), 1000);
    assert!(matches!(fixture.answer("999", "dead"), Some(HookAnswer::Done(_))));
}

#[test]
fn one_pod_that_a_hook_fails_at_delays_no_other() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("bad", &[question("lb", 1)]);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let call = fixture.call("lb").unwrap();
        fixture.end("lb", &call, Err(CallFailure::question("INTERNAL")));
        fixture.ask("good", &[question("lb", i64::try_from(pauses.len()).unwrap_or_default())]);
        let good = fixture.call("lb").unwrap();
        assert_eq!(good.request.pod.as_ref().unwrap().uid, "good", "at once");
        fixture.end("lb", &good, done());
        pauses.push(fixture.skip_pause("lb"));
    }
    assert!(pauses[0] <= Duration::from_millis(375), "{pauses:?}");
    assert!(pauses[8] >= Duration::from_secs(15) && pauses[8] <= Duration::from_secs(45), "{pauses:?}");
}

#[test]
fn three_failures_release_pods_with_policy_ignore() {
    let mut fixture = Fixture::new(&[registered("lb", FailurePolicy::Ignore, 1)]);
    fixture.ask("u", &[question("lb", 1)]);
    fixture.ask("waits", &[question("lb", 1)]);
    for attempt in 1..=3 {
        for uid in ["u", "waits"] {
            assert!(!matches!(fixture.answer(uid, "lb"), Some(HookAnswer::Done(_))), "attempt {attempt}");
        }
        let call = fixture.call("lb").unwrap_or_else(|| {
            fixture.skip_pause("lb");
            fixture.call("lb").unwrap()
        });
        fixture.end("lb", &call, refused());
    }
    for uid in ["u", "waits"] {
        let Some(HookAnswer::Done(evidence)) = fixture.answer(uid, "lb") else { panic!("{uid} waits still") };
        assert_eq!(evidence.level, EvidenceLevel::Assumed);
        assert!(evidence.detail.contains("refused"), "{}", evidence.detail);
    }
    // The next one is not released before the hook has been tried again.
    fixture.ask("later", &[question("lb", 1)]);
    assert!(matches!(fixture.answer("later", "lb"), Some(HookAnswer::Open { .. })));
    fixture.skip_pause("lb");
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, refused());
    assert!(matches!(fixture.answer("later", "lb"), Some(HookAnswer::Done(_))));
}

#[test]
fn a_changed_hook_receives_open_requests_again() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    let old = fixture.call("lb").unwrap();
    fixture.table.register(&registered("lb", FailurePolicy::Fail, 2));
    assert!(old.cancelled.is_cancelled());
    let new = fixture.call("lb").unwrap();
    assert_eq!(new.attempt, 2);
    fixture.end("lb", &old, Err(CallFailure::question("late")));
    fixture.end("lb", &new, done());
    assert!(matches!(fixture.answer("u", "lb"), Some(HookAnswer::Done(_))));
}

#[test]
fn an_answer_survives_a_refused_write_but_not_for_long() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, done());
    fixture.ask("u", &[]);
    assert!(
        matches!(fixture.answer("u", "lb"), Some(HookAnswer::Done(_))),
        "the write that it led to may be refused"
    );
    fixture.ask("u", &[question("lb", 1)]);
    assert!(matches!(fixture.answer("u", "lb"), Some(HookAnswer::Done(_))));
    assert!(fixture.withhold_unless_asked("u", HookPhase::Prepare), "the hook has acted");
    assert!(fixture.call("lb").is_none());
    fixture.ask("u", &[]);
    fixture.now += Duration::from_secs(11);
    fixture.ask("u", &[]);
    assert_eq!(fixture.answer("u", "lb"), None);
}

/// A pod that leaves the selector of a hook and matches it again is asked about with the same time.
#[test]
fn an_answer_is_not_used_after_a_later_phase() {
    let complete = [question_in(HookPhase::Complete, 1)];
    for phase in [HookPhase::Prepare, HookPhase::Release] {
        let later = [question_in(phase, 2)];
        // Whether the question is closed before the next one is asked, or with it; whether the next one is answered.
        for (is_closed_before, is_answered) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut fixture = Fixture::with("lb");
            fixture.ask("u", &complete);
            let call = fixture.call("lb").unwrap();
            fixture.end("lb", &call, done());
            if is_closed_before {
                fixture.ask("u", &[]);
            }
            fixture.ask("v", &later);
            assert!(
                matches!(fixture.table.answer("u", &complete[0]), Some(HookAnswer::Done(_))),
                "another pod"
            );
            fixture.ask("v", &[]);
            fixture.ask("u", &later);
            let call = fixture.call("lb").unwrap();
            if is_answered {
                fixture.end("lb", &call, done());
            }
            fixture.ask("u", &[]);
            assert_eq!(
                fixture.table.answer("u", &complete[0]),
                None,
                "{phase:?} {is_closed_before} {is_answered}"
            );
            fixture.ask("u", &complete);
            assert_eq!(fixture.call("lb").unwrap().phase, HookPhase::Complete, "it is called again");
            assert_eq!(fixture.table.answer("u", &later[0]), None, "the pod was added since");
        }
    }
}

#[test]
fn checks_leave_other_answers_as_they_are() {
    let (complete, check) = (question_in(HookPhase::Complete, 1), question_in(HookPhase::PreCheck, 2));
    let mut fixture = Fixture::with("lb");
    for question in [[complete.clone()], [check.clone()]] {
        fixture.ask("u", &question);
        let call = fixture.call("lb").unwrap();
        fixture.end("lb", &call, done());
        fixture.ask("u", &[]);
    }
    fixture.ask("u", &[question_in(HookPhase::PreCheck, 3), check, complete]);
    assert_eq!(fixture.all_calls("lb").len(), 1, "only the new question");
}

#[test]
fn a_hook_that_is_gone_or_not_valid_never_answers() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1), question("other", 1)]);
    fixture.table.deregister("lb");
    for hook in ["lb", "other"] {
        let answer = fixture.answer("u", hook);
        assert!(
            matches!(&answer, Some(HookAnswer::Open { message }) if message.contains("not registered")),
            "{answer:?}"
        );
    }
    let valid = registered("lb", FailurePolicy::Ignore, 1);
    let invalid =
        RegisteredHook { connection: HookConnection::Invalid("spec".to_owned()), ..(*valid).clone() };
    fixture.table.register(&Arc::new(invalid));
    let answer = fixture.answer("u", "lb");
    assert!(matches!(&answer, Some(HookAnswer::Open { message }) if message.contains("spec")), "{answer:?}");
    fixture.ask("u", &[]);
    assert!(!fixture.table.hooks.contains_key("other"), "nothing is left of it");
}

#[test]
fn an_unreachable_hook_is_reported_when_it_becomes_known() {
    let mut fixture = Fixture::with("lb");
    fixture.ask("u", &[question("lb", 1)]);
    let health = |fixture: &Fixture| fixture.table.health("lb").unwrap();
    assert_eq!(health(&fixture).reachable, None);
    fixture.table.connection("lb", Err(CallFailure::connection("nobody")), fixture.now);
    assert_eq!((fixture.woken(), health(&fixture).reachable), (vec!["pod-u".to_owned()], Some(false)));
    assert_eq!(health(&fixture).last_error.as_deref(), Some("nobody"));
    fixture.table.connection("lb", Ok(()), fixture.now);
    assert_eq!((health(&fixture).reachable, health(&fixture).last_error), (Some(true), None));
    let call = fixture.call("lb").unwrap();
    assert_eq!(health(&fixture).calls_in_flight, 1);
    fixture.end("lb", &call, done());
    assert_eq!((health(&fixture).calls_in_flight, health(&fixture).latencies), (0, Some((5, 5))));
    assert!(fixture.table.health("other").is_none());
}

#[test]
fn a_hook_that_is_registered_again_has_not_given_the_answers_of_the_one_before() {
    let mut fixture = Fixture::with("lb");
    // The answer to a closed question, and that to an open one.
    for uid in ["closed", "open"] {
        fixture.ask(uid, &[question("lb", 1)]);
        let call = fixture.call("lb").unwrap();
        fixture.end("lb", &call, done());
    }
    fixture.ask("closed", &[]);
    fixture.table.deregister("lb");
    fixture.table.register(&registered("lb", FailurePolicy::Fail, 64));
    fixture.ask("closed", &[question("lb", 1)]);
    fixture.ask("open", &[question("lb", 1)]);
    for uid in ["open", "closed"] {
        assert!(!matches!(fixture.answer(uid, "lb"), Some(HookAnswer::Done(_))), "{uid}");
    }
    let calls = fixture.all_calls("lb");
    assert_eq!(calls.len(), 2);
    for call in calls {
        fixture.end("lb", &call, done());
    }
    assert!(matches!(fixture.answer("open", "lb"), Some(HookAnswer::Done(_))));
}
