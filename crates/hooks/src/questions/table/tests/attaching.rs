//! Hook systems that connect to Podward.

use super::super::hook_state::TIME_TO_ATTACH;
use super::*;

fn attached(failure_policy: FailurePolicy) -> Fixture {
    let endpoint = registered("lb", failure_policy, 64);
    Fixture::new(&[Arc::new(RegisteredHook {
        connection: HookConnection::Attachment,
        ..(*endpoint).clone()
    })])
}

fn nobody() -> CallFailure {
    CallFailure::connection("no hook system is attached")
}

impl Fixture {
    /// The first thing that a driver does: it finds no stream.
    fn find_no_stream(&mut self) {
        self.table.began("lb");
        self.table.probed("lb", Err(nobody()), self.now);
    }

    /// Fails one call or probe after the other, until `end`.
    fn fail_until(&mut self, end: Instant) {
        while self.now < end {
            match self.table.next("lb", self.now) {
                NextStep::Call(call) => self.end("lb", &call, Err(nobody())),
                NextStep::Probe => self.table.probed("lb", Err(nobody()), self.now),
                NextStep::Wait(Some(until)) => self.now = until,
                NextStep::Wait(None) => panic!("nothing is planned"),
            }
        }
    }

    fn is_done(&self, uid: &str) -> bool {
        matches!(self.answer(uid, "lb"), Some(HookAnswer::Done(_)))
    }
}

/// As after a change of leader: the hook systems attach to the new leader some seconds later.
#[test]
fn a_hook_has_time_to_attach_before_pods_continue_without_it() {
    let mut fixture = attached(FailurePolicy::Ignore);
    let begin = fixture.now;
    for uid in ["a", "b"] {
        fixture.ask(uid, &[question("lb", 1)]);
    }
    fixture.find_no_stream();
    fixture.fail_until(begin + Duration::from_secs(20));
    let answer = fixture.answer("a", "lb");
    assert!(
        matches!(&answer, Some(HookAnswer::Open { message }) if message.contains("no hook system")),
        "{answer:?}"
    );
    assert_eq!(fixture.table.health("lb").unwrap().reachable, Some(false));
    fixture.table.connection("lb", Ok(()), fixture.now);
    let calls = fixture.all_calls("lb");
    assert_eq!(calls.len(), 2, "it is asked");
    // What has failed before does not count: two failures are not enough.
    for call in &calls {
        fixture.end("lb", call, Err(CallFailure::answer("no answer")));
    }
    assert!(!fixture.is_done("a") && !fixture.is_done("b"));
}

#[test]
fn pods_continue_without_a_hook_that_does_not_attach() {
    let mut fixture = attached(FailurePolicy::Ignore);
    let begin = fixture.now;
    fixture.ask("a", &[question("lb", 1)]);
    fixture.find_no_stream();
    fixture.fail_until(begin + TIME_TO_ATTACH);
    assert!(!fixture.is_done("a"));
    // Three attempts, at most 5 s after each other.
    fixture.fail_until(begin + TIME_TO_ATTACH + Duration::from_secs(20));
    assert!(fixture.is_done("a"));
    // Later, there is no such time any more.
    fixture.table.connection("lb", Ok(()), fixture.now);
    fixture.ask("b", &[question("lb", 1)]);
    let call = fixture.call("lb").unwrap();
    fixture.end("lb", &call, done());
    fixture.table.connection("lb", Err(nobody()), fixture.now);
    fixture.ask("c", &[question("lb", 1)]);
    fixture.fail_until(fixture.now + Duration::from_secs(5));
    assert!(fixture.is_done("c"));
}

#[test]
fn a_stream_proves_nothing_while_questions_get_no_answer() {
    let mut fixture = attached(FailurePolicy::Fail);
    fixture.table.connection("lb", Ok(()), fixture.now);
    fixture.ask("a", &[question("lb", 1)]);
    let reachable = |fixture: &Fixture| fixture.table.health("lb").unwrap().reachable;
    for _ in 0..3 {
        let call = fixture.call("lb").unwrap_or_else(|| {
            fixture.skip_pause("lb");
            fixture.call("lb").unwrap()
        });
        fixture.end("lb", &call, Err(CallFailure::answer("no answer")));
    }
    assert_eq!(reachable(&fixture), Some(false));
    fixture.skip_pause("lb");
    let call = fixture.call("lb").unwrap();
    // The call takes long. Meanwhile the stream is found.
    fixture.table.began("lb");
    fixture.table.probed("lb", Ok(()), fixture.now);
    assert_eq!(reachable(&fixture), Some(false));
    fixture.end("lb", &call, Err(CallFailure::answer("no answer")));
    // When no question waits any more, the stream is all that is known.
    fixture.ask("a", &[]);
    fixture.table.began("lb");
    fixture.table.probed("lb", Ok(()), fixture.now);
    assert_eq!(reachable(&fixture), Some(true));
}
