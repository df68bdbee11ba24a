use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::{
    DeadlinePolicy, Evidence, EvidenceLevel, FailurePolicy, GateTiming, Hook, Selector,
};
use serde_json::json;

use super::*;
use crate::callbacks::registered::Connection;
use crate::callbacks::response::{Failure, Reply};

fn pod(uid: &str) -> Arc<CachedPod> {
    let metadata = json!({"name": format!("pod-{uid}"), "namespace": "shop", "uid": uid});
    Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
}

fn question(hook: &str, since: i64) -> Question {
    Question {
        hook: hook.to_owned(),
        phase: Phase::Prepare,
        operations: Vec::new(),
        since: UnixNanos(since),
        deadline: UnixNanos(since + 1),
    }
}

fn registered(name: &str, failure_policy: FailurePolicy, max_concurrent_calls: usize) -> Arc<Registered> {
    let hook = Hook {
        name: name.to_owned(),
        pod_selector: Selector::everything(),
        namespace_selector: Selector::everything(),
        phases: vec![Phase::Prepare],
        operation_types: Vec::new(),
        order: 0,
        deadline_nanoseconds: 1,
        deadline_policy: DeadlinePolicy::Hold,
        failure_policy,
        post_check_rejection: podward_core::PostCheckRejection::Hold,
        prepare_timing: GateTiming::AfterGate,
        complete_timing: GateTiming::BeforeGate,
    };
    let call_timeout = Duration::from_secs(1);
    Arc::new(Registered { hook, connection: Connection::Attachment, max_concurrent_calls, call_timeout })
}

fn done() -> Result<Reply, Failure> {
    Ok(Reply::Done(Evidence { level: EvidenceLevel::Proven, detail: "seen".to_owned() }))
}

fn refused() -> Result<Reply, Failure> {
    Err(Failure::connection("refused"))
}

/// A board and a clock.
struct Rig {
    board: Board,
    now: Instant,
}

impl Rig {
    fn new(hooks: &[Arc<Registered>]) -> Self {
        let mut board = Board::new(Outbox::default());
        for hook in hooks {
            board.register(hook);
        }
        Rig { board, now: Instant::now() }
    }

    fn with(name: &str) -> Self {
        Rig::new(&[registered(name, FailurePolicy::Fail, 64)])
    }

    fn ask(&mut self, uid: &str, questions: &[Question]) {
        self.board.ask(&pod(uid), questions, self.now);
    }

    fn call(&mut self, hook: &str) -> Option<Call> {
        match self.board.next(hook, self.now) {
            Next::Call(call) => Some(*call),
            Next::Probe => panic!("a probe"),
            Next::Wait(_) => None,
        }
    }

    fn all_calls(&mut self, hook: &str) -> Vec<Call> {
        std::iter::from_fn(|| self.call(hook)).collect()
    }

    fn end(&mut self, hook: &str, call: &Call, result: Result<Reply, Failure>) {
        self.board.ended(hook, (call.id, call.attempt), Some(result), Duration::from_millis(5), self.now);
    }

    fn answer(&self, uid: &str, hook: &str) -> Option<Answer> {
        self.board.answer(uid, &question(hook, 1))
    }

    fn woken(&self) -> Vec<String> {
        std::iter::from_fn(|| self.board.out.pods.pop()).map(|pod| pod.name).collect()
    }

    /// Goes on to when the driver of `hook` would look again.
    fn skip_pause(&mut self, hook: &str) -> Duration {
        let Next::Wait(Some(until)) = self.board.next(hook, self.now) else { panic!("nothing is planned") };
        let pause = until.saturating_duration_since(self.now);
        self.now = until;
        pause
    }
}

#[test]
fn a_question_is_asked_once_and_its_answer_wakes_the_pod() {
    let mut rig = Rig::with("lb");
    assert_eq!(rig.answer("u", "lb"), None, "not asked");
    rig.ask("u", &[question("lb", 1), question("lb", 1)]);
    assert_eq!(rig.answer("u", "lb"), Some(Answer::Open { message: String::new() }));
    let call = rig.call("lb").unwrap();
    assert_eq!((call.request.attempt, call.request.question_id.as_str()), (1, "u/lb/PREPARE/1"));
    rig.ask("u", &[question("lb", 1)]);
    assert!(rig.call("lb").is_none(), "it is in flight");
    rig.end("lb", &call, done());
    assert_eq!(rig.woken(), ["pod-u"]);
    assert!(matches!(rig.answer("u", "lb"), Some(Answer::Done(evidence)) if evidence.detail == "seen"));
    rig.ask("u", &[question("lb", 1)]);
    assert!(rig.call("lb").is_none(), "it is answered");
}

#[test]
fn questions_that_are_not_asked_any_more_are_cancelled_and_forgotten() {
    let mut rig = Rig::with("lb");
    rig.ask("u", &[question("lb", 1)]);
    rig.ask("v", &[question("lb", 1)]);
    let (first, second) = (rig.call("lb").unwrap(), rig.call("lb").unwrap());
    rig.ask("u", &[question("lb", 2)]);
    assert!(first.cancelled.is_cancelled() && !second.cancelled.is_cancelled());
    let other = rig.call("lb").unwrap();
    assert_eq!(other.request.question_id, "u/lb/PREPARE/2");
    rig.end("lb", &first, done());
    assert_eq!(rig.answer("u", "lb"), None, "an answer that came too late is none");
    rig.ask("u", &[]);
    rig.board.forget("v", rig.now);
    assert!(other.cancelled.is_cancelled() && second.cancelled.is_cancelled());
    assert!(rig.board.questions.is_empty() && rig.board.pods.is_empty());
    assert_eq!(rig.board.hooks["lb"].open, 0);
    rig.board.deregister("lb");
    assert!(rig.board.hooks.is_empty());
}

#[test]
fn pending_and_rejected_are_asked_again_when_they_said() {
    let mut rig = Rig::with("lb");
    rig.ask("u", &[question("lb", 1)]);
    let pending = || Reply::Pending { message: "3 sessions".to_owned(), retry: Duration::from_secs(20) };
    let call = rig.call("lb").unwrap();
    rig.end("lb", &call, Ok(pending()));
    assert_eq!(rig.woken(), ["pod-u"]);
    let pause = rig.skip_pause("lb");
    assert!(pause >= Duration::from_secs(20) && pause <= Duration::from_secs(22), "{pause:?}");
    let call = rig.call("lb").unwrap();
    assert_eq!(call.attempt, 2);
    rig.end("lb", &call, Ok(pending()));
    assert!(rig.woken().is_empty(), "nothing new");
    rig.skip_pause("lb");
    let call = rig.call("lb").unwrap();
    rig.end("lb", &call, Ok(Reply::Rejected { reason: "no".to_owned(), retry: None }));
    assert_eq!(rig.answer("u", "lb"), Some(Answer::Rejected { reason: "no".to_owned() }));
    let pause = rig.skip_pause("lb");
    assert!(pause >= Duration::from_secs(1) && pause < Duration::from_secs(2), "{pause:?}");
}

#[test]
fn a_thousand_pods_cost_a_dead_hook_a_few_probes_and_another_hook_nothing() {
    let hooks = [registered("dead", FailurePolicy::Fail, 64), registered("fast", FailurePolicy::Fail, 64)];
    let mut rig = Rig::new(&hooks);
    for index in 0..1000 {
        rig.ask(&format!("{index:03}"), &[question("dead", 1), question("fast", 1)]);
    }
    let mut probes = 0;
    for round in 0..50 {
        let calls = rig.all_calls("dead");
        assert!(calls.len() <= if round == 0 { 64 } else { 1 }, "round {round}: {} calls", calls.len());
        probes += if round == 0 { 0 } else { calls.len() };
        // Meanwhile the other hook answers as many as it takes, each time.
        let fast = rig.all_calls("fast");
        assert_eq!(fast.len(), 64.min(1000 - 64 * round.min(15)) * usize::from(round < 16), "round {round}");
        fast.iter().for_each(|call| rig.end("fast", call, done()));
        calls.iter().for_each(|call| rig.end("dead", call, refused()));
        rig.skip_pause("dead");
    }
    assert!(probes > 40, "{probes}");
    let told = rig.answer("999", "dead");
    let words = "it can't be reached: refused".to_owned();
    assert_eq!(told, Some(Answer::Open { message: words }), "also who was never asked about");
    assert!(rig.woken().contains(&"pod-999".to_owned()));

    // It comes back: one probe, then everything that waits, in the order of the line.
    let mut answered = Vec::new();
    while answered.len() < 1000 {
        let calls = rig.all_calls("dead");
        assert!(!calls.is_empty(), "after {}", answered.len());
        assert!(calls.len() == 1 || !answered.is_empty(), "first a probe");
        for call in &calls {
            rig.end("dead", call, done());
            answered.push(call.request.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default());
        }
    }
    answered.sort();
    answered.dedup();
    assert_eq!(answered.len(), 1000);
    assert!(matches!(rig.answer("999", "dead"), Some(Answer::Done(_))));
}

#[test]
fn one_pod_that_a_hook_fails_at_delays_no_other() {
    let mut rig = Rig::with("lb");
    rig.ask("bad", &[question("lb", 1)]);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let call = rig.call("lb").unwrap();
        rig.end("lb", &call, Err(Failure::question("INTERNAL")));
        rig.ask("good", &[question("lb", i64::try_from(pauses.len()).unwrap_or_default())]);
        let good = rig.call("lb").unwrap();
        assert_eq!(good.request.pod.as_ref().unwrap().uid, "good", "at once");
        rig.end("lb", &good, done());
        pauses.push(rig.skip_pause("lb"));
    }
    assert!(pauses[0] <= Duration::from_millis(375), "{pauses:?}");
    assert!(pauses[8] >= Duration::from_secs(15) && pauses[8] <= Duration::from_secs(45), "{pauses:?}");
}

#[test]
fn three_failures_let_go_of_pods_if_the_policy_is_to_ignore_them() {
    let mut rig = Rig::new(&[registered("lb", FailurePolicy::Ignore, 1)]);
    rig.ask("u", &[question("lb", 1)]);
    rig.ask("waits", &[question("lb", 1)]);
    for attempt in 1..=3 {
        for uid in ["u", "waits"] {
            assert!(!matches!(rig.answer(uid, "lb"), Some(Answer::Done(_))), "attempt {attempt}");
        }
        let call = rig.call("lb").unwrap_or_else(|| {
            rig.skip_pause("lb");
            rig.call("lb").unwrap()
        });
        rig.end("lb", &call, refused());
    }
    for uid in ["u", "waits"] {
        let Some(Answer::Done(evidence)) = rig.answer(uid, "lb") else { panic!("{uid} waits still") };
        assert_eq!(evidence.level, EvidenceLevel::Assumed);
        assert!(evidence.detail.contains("refused"), "{}", evidence.detail);
    }
    // The next one is not let go before it has been tried again.
    rig.ask("later", &[question("lb", 1)]);
    assert!(matches!(rig.answer("later", "lb"), Some(Answer::Open { .. })));
    rig.skip_pause("lb");
    let call = rig.call("lb").unwrap();
    rig.end("lb", &call, refused());
    assert!(matches!(rig.answer("later", "lb"), Some(Answer::Done(_))));
}

#[test]
fn a_changed_hook_is_asked_again_what_was_in_flight() {
    let mut rig = Rig::with("lb");
    rig.ask("u", &[question("lb", 1)]);
    let old = rig.call("lb").unwrap();
    rig.board.register(&registered("lb", FailurePolicy::Fail, 2));
    assert!(old.cancelled.is_cancelled());
    let new = rig.call("lb").unwrap();
    assert_eq!(new.attempt, 2);
    rig.end("lb", &old, Err(Failure::question("late")));
    rig.end("lb", &new, done());
    assert!(matches!(rig.answer("u", "lb"), Some(Answer::Done(_))));
}

#[test]
fn an_answer_survives_a_refused_write_but_not_for_long() {
    let mut rig = Rig::with("lb");
    rig.ask("u", &[question("lb", 1)]);
    let call = rig.call("lb").unwrap();
    rig.end("lb", &call, done());
    rig.ask("u", &[]);
    assert!(
        matches!(rig.answer("u", "lb"), Some(Answer::Done(_))),
        "the write that it led to may be refused"
    );
    rig.ask("u", &[question("lb", 1)]);
    assert!(matches!(rig.answer("u", "lb"), Some(Answer::Done(_))));
    assert!(rig.call("lb").is_none());
    rig.ask("u", &[]);
    rig.now += Duration::from_secs(11);
    rig.ask("u", &[]);
    assert_eq!(rig.answer("u", "lb"), None);
}

#[test]
fn a_hook_that_is_gone_or_not_valid_never_answers() {
    let mut rig = Rig::with("lb");
    rig.ask("u", &[question("lb", 1), question("other", 1)]);
    rig.board.deregister("lb");
    for hook in ["lb", "other"] {
        let answer = rig.answer("u", hook);
        assert!(
            matches!(&answer, Some(Answer::Open { message }) if message.contains("not registered")),
            "{answer:?}"
        );
    }
    let valid = registered("lb", FailurePolicy::Ignore, 1);
    let invalid = Registered { connection: Connection::Invalid("spec".to_owned()), ..(*valid).clone() };
    rig.board.register(&Arc::new(invalid));
    let answer = rig.answer("u", "lb");
    assert!(matches!(&answer, Some(Answer::Open { message }) if message.contains("spec")), "{answer:?}");
    rig.ask("u", &[]);
    assert!(!rig.board.hooks.contains_key("other"), "nothing is left of it");
}

#[test]
fn what_an_unreachable_hook_owes_is_told_when_it_comes_to_be_known() {
    let mut rig = Rig::with("lb");
    rig.ask("u", &[question("lb", 1)]);
    let standing = |rig: &Rig| rig.board.standing("lb").unwrap();
    assert_eq!(standing(&rig).reachable, None);
    rig.board.connection("lb", Err(Failure::connection("nobody")), rig.now);
    assert_eq!((rig.woken(), standing(&rig).reachable), (vec!["pod-u".to_owned()], Some(false)));
    assert_eq!(standing(&rig).last_error.as_deref(), Some("nobody"));
    rig.board.connection("lb", Ok(()), rig.now);
    assert_eq!((standing(&rig).reachable, standing(&rig).last_error), (Some(true), None));
    let call = rig.call("lb").unwrap();
    assert_eq!(standing(&rig).calls_in_flight, 1);
    rig.end("lb", &call, done());
    assert_eq!((standing(&rig).calls_in_flight, standing(&rig).latencies), (0, Some((5, 5))));
    assert!(rig.board.standing("other").is_none());
}
