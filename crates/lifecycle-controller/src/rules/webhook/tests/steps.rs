//! Each step of the protocol.

use podward_api::pod_transition_rule::WebhookStatus;
use podward_core::UnixNanos;

use super::super::answer::{Failure, PollAnswer, PostAnswer};
use super::super::machine::{Call, Machine, Settings, Verdict};
use super::{SECOND, at, machine, settings, subject, subjects};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn done() -> PostAnswer {
    PostAnswer { success: true, ..PostAnswer::default() }
}

fn task(id: &str, finished: &[&str]) -> PostAnswer {
    PostAnswer {
        success: true,
        task: Some(id.to_owned()),
        finished_names: names(finished),
        message: "soon".to_owned(),
    }
}

fn away() -> Failure {
    Failure::Webhook("nobody there".to_owned())
}

/// The one batch that is to be sent now.
fn batch(machine: &mut Machine, now: UnixNanos) -> (u64, Vec<String>) {
    match machine.next(now).calls.as_slice() {
        [Call::Post { number, pods }] => (*number, pods.iter().map(|pod| pod.pod.clone()).collect()),
        other => unreachable!("{other:?}"),
    }
}

/// The one task that is to be asked for now.
fn poll(machine: &mut Machine, now: UnixNanos) -> (u64, String) {
    match machine.next(now).calls.as_slice() {
        [Call::Poll { number, task }] => (*number, task.clone()),
        other => unreachable!("{other:?}"),
    }
}

fn passed(machine: &Machine, pods: &[&str]) -> Vec<bool> {
    subjects(pods).iter().map(|subject| machine.verdict(subject) == Verdict::Passed).collect()
}

fn reason(machine: &Machine, pod: &str) -> String {
    match machine.verdict(&subject(pod, 1)) {
        Verdict::Rejected(reason) | Verdict::Waiting(reason) => reason,
        other => unreachable!("{other:?}"),
    }
}

/// Whether the webhook has said no, rather than nothing.
fn says_no(machine: &Machine, pod: &str) -> bool {
    matches!(machine.verdict(&subject(pod, 1)), Verdict::Rejected(_))
}

/// With `pods` in the task `t`, of which `finished` are approved.
fn polling(ignores_failures: bool, pods: &[&str], finished: &[&str]) -> Machine {
    let mut machine = machine(ignores_failures);
    machine.ask(subjects(pods), at(0));
    let (number, _) = batch(&mut machine, at(0));
    machine.posted(number, "trace", Ok(task("t", finished)), at(0), 0.5);
    machine
}

#[test]
fn all_that_wait_go_into_one_batch_and_pass_together() {
    let mut machine = machine(false);
    machine.ask(subjects(&["a", "b"]), at(0));
    let (number, pods) = batch(&mut machine, at(0));
    assert_eq!(pods, ["a", "b"]);
    assert!(reason(&machine, "a").contains("is being asked"));
    assert!(!says_no(&machine, "a"));
    // While it is on its way nothing else is sent; who comes meanwhile is in the next.
    machine.ask(subjects(&["a", "b", "c"]), at(1));
    assert!(machine.next(at(1)).calls.is_empty());
    machine.posted(number, "trace", Ok(done()), at(2), 0.5);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, true, false]);
    assert_eq!(batch(&mut machine, at(2)).1, ["c"]);
}

#[test]
fn to_be_consulted_again_changes_nothing_without_polls_too() {
    let plain = || Settings { poll: None, ..settings(false) };
    let mut machine = Machine::new("shop/rules/outside".to_owned(), plain(), None, at(0));
    let consult = |machine: &mut Machine, now| {
        machine.configure(plain(), now);
        machine.ask(subjects(&["a"]), now);
    };
    consult(&mut machine, at(0));
    let (number, _) = batch(&mut machine, at(0));
    consult(&mut machine, at(1));
    assert!(machine.next(at(1)).calls.is_empty(), "it is being asked already");
    machine.posted(number, "trace", Err(away()), at(2), 0.5);
    consult(&mut machine, at(2));
    assert!(reason(&machine, "a").contains("nobody there"));
    assert_eq!(machine.next(at(2)).wake_at, Some(at(3)), "it is given time to come back");
    let (number, _) = batch(&mut machine, at(3));
    consult(&mut machine, at(3));
    machine.posted(number, "trace", Ok(done()), at(4), 0.5);
    assert_eq!(passed(&machine, &["a"]), [true]);
}

#[test]
fn who_is_refused_is_sent_again_after_five_seconds_or_with_a_new_one() {
    let mut machine = machine(false);
    machine.ask(subjects(&["a", "b"]), at(0));
    let (number, _) = batch(&mut machine, at(0));
    let answer = PostAnswer {
        finished_names: names(&["a", "stranger"]),
        message: "no".to_owned(),
        ..PostAnswer::default()
    };
    machine.posted(number, "trace", Ok(answer.clone()), at(0), 0.5);
    assert_eq!(passed(&machine, &["a", "b"]), [true, false]);
    assert_eq!(
        reason(&machine, "b"),
        "Webhook check shop/rules/outside rejected, traceId trace, taskId , msg: no"
    );
    assert!(says_no(&machine, "b"));
    let waits = machine.next(at(4));
    assert_eq!((waits.calls, waits.wake_at), (vec![], Some(at(5))));
    let (number, pods) = batch(&mut machine, at(5));
    assert_eq!(pods, ["b"]);
    machine.posted(number, "trace", Ok(answer), at(5), 0.5);
    machine.ask(subjects(&["a", "b", "c"]), at(6));
    assert_eq!(batch(&mut machine, at(6)).1, ["b", "c"]);
}

#[test]
fn a_failure_passes_or_rejects_by_policy() {
    let mut ignoring = machine(true);
    ignoring.ask(subjects(&["a"]), at(0));
    let (number, _) = batch(&mut ignoring, at(0));
    ignoring.posted(number, "trace", Err(away()), at(1), 0.5);
    let failure = "Fail to do webhook request shop/rules/outside, nobody there, traceId trace".to_owned();
    assert_eq!(ignoring.verdict(&subject("a", 1)), Verdict::Ignored(failure.clone()));

    let mut failing = machine(false);
    failing.ask(subjects(&["a"]), at(0));
    let mut now = at(0);
    for pause in [1, 2, 4, 8, 16, 30, 30, 30] {
        let (number, _) = batch(&mut failing, now);
        failing.posted(number, "trace", Err(away()), now, 0.5);
        assert_eq!(failing.verdict(&subject("a", 1)), Verdict::Waiting(failure.clone()));
        // Nobody who comes meanwhile makes it sooner.
        failing.ask(subjects(&["a", "b"]), now);
        let next = UnixNanos(now.0 + pause * SECOND);
        assert_eq!(failing.next(now).wake_at, Some(next));
        now = next;
    }
    let (number, _) = batch(&mut failing, now);
    failing.posted(number, "trace", Ok(done()), now, 0.5);
    assert_eq!(passed(&failing, &["a", "b"]), [true, true]);
}

#[test]
fn retries_are_spread() {
    for (jitter, nanos) in [(0.0, 800_000_000), (1.0, 1_200_000_000), (f64::INFINITY, 1_200_000_000)] {
        let mut machine = machine(false);
        machine.ask(subjects(&["a"]), at(0));
        let (number, _) = batch(&mut machine, at(0));
        machine.posted(number, "trace", Err(away()), at(0), jitter);
        assert_eq!(machine.next(at(0)).wake_at, Some(UnixNanos(at(0).0 + nanos)));
    }
}

#[test]
fn what_is_wrong_on_our_side_is_nobody_s_pass() {
    let mut machine = machine(true);
    machine.ask(subjects(&["a"]), at(0));
    let (number, _) = batch(&mut machine, at(0));
    machine.posted(number, "trace", Err(Failure::Ours("no pods".to_owned())), at(0), 0.5);
    assert!(reason(&machine, "a").contains("no pods"));
    assert_eq!(batch(&mut machine, at(1)).1, ["a"]);
}

#[test]
fn garbage_about_tasks_is_a_failure() {
    for (settings, answer, words) in [
        (settings(false), task("", &[]), "names no task"),
        (Settings { poll: None, ..settings(false) }, task("t", &[]), "no clientConfig.poll"),
    ] {
        let mut machine = Machine::new("n".to_owned(), settings, None, at(0));
        machine.ask(subjects(&["a"]), at(0));
        let (number, _) = batch(&mut machine, at(0));
        machine.posted(number, "trace", Ok(answer), at(0), 0.5);
        assert!(reason(&machine, "a").contains(words));
    }
}

#[test]
fn a_task_is_asked_for_until_it_is_finished() {
    let mut machine = polling(false, &["a", "b", "c"], &["a"]);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, false, false]);
    assert_eq!(machine.next(at(0)).wake_at, Some(at(5)));
    let (number, id) = poll(&mut machine, at(5));
    assert_eq!(id, "t");
    assert!(machine.next(at(6)).calls.is_empty(), "twice at the same time");
    // What it approves adds up, also while it says that it has no success yet.
    let some = PollAnswer {
        finished_names: names(&["b", "stranger"]),
        message: "half".to_owned(),
        ..PollAnswer::default()
    };
    machine.polled(number, Ok(some), at(6));
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, true, false]);
    assert_eq!(
        reason(&machine, "c"),
        "Not approved by webhook shop/rules/outside, polling task t is running half"
    );
    assert!(!says_no(&machine, "c"));
    // An error is none of an end.
    let (number, _) = poll(&mut machine, at(11));
    machine.polled(number, Err(away()), at(12));
    assert!(reason(&machine, "c").ends_with("polling task t error, nobody there"));
    let (number, _) = poll(&mut machine, at(17));
    machine.polled(number, Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }), at(17));
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, true, true]);
    let status = machine.status(at(17));
    assert_eq!((status.task_states.len(), status.history.len()), (0, 1));
    assert_eq!(status.history[0].approved, ["a", "b", "c"]);
    assert!(machine.status(at(17 + 601)).history.is_empty(), "it is kept for 10 minutes");
}

#[test]
fn finished_without_success_is_nobody_s_pass() {
    let mut machine = polling(false, &["a"], &[]);
    let (number, _) = poll(&mut machine, at(5));
    machine.polled(number, Ok(PollAnswer { finished: true, ..PollAnswer::default() }), at(5));
    assert_eq!(passed(&machine, &["a"]), [false]);
}

#[test]
fn what_a_stopped_task_has_not_approved_is_sent_anew() {
    let mut machine = polling(true, &["a", "b"], &[]);
    let (number, _) = poll(&mut machine, at(5));
    let stop = PollAnswer {
        stop: true,
        finished_names: names(&["a"]),
        message: "enough".to_owned(),
        ..PollAnswer::default()
    };
    machine.polled(number, Ok(stop), at(5));
    assert_eq!(passed(&machine, &["a", "b"]), [true, false]);
    assert_eq!(
        reason(&machine, "b"),
        "Not approved by webhook shop/rules/outside, polling task t stopped enough"
    );
    assert!(says_no(&machine, "b"));
    assert_eq!(batch(&mut machine, at(5)).1, ["b"]);
}

#[test]
fn a_task_that_takes_too_long_is_given_up() {
    // Its webhook answered: it says no. It didn't: the policy decides.
    for (ignores_failures, fails, is_passed) in
        [(true, false, false), (true, true, true), (false, true, false)]
    {
        let mut machine = polling(ignores_failures, &["a"], &[]);
        let (number, _) = poll(&mut machine, at(59));
        let answer = if fails {
            Err(away())
        } else {
            Ok(PollAnswer { message: "later".to_owned(), ..PollAnswer::default() })
        };
        machine.polled(number, answer, at(59));
        assert_eq!(machine.next(at(59)).wake_at, Some(at(60)));
        let next = machine.next(at(60));
        assert!(next.is_news);
        match machine.verdict(&subject("a", 1)) {
            Verdict::Ignored(failure) => {
                assert!(is_passed && failure.starts_with("Polling Timeout. soon: nobody"))
            }
            Verdict::Waiting(reason) => {
                assert!(
                    !is_passed && reason.contains("polling task t stopped Polling Timeout. "),
                    "{reason}"
                );
                assert!(matches!(next.calls.as_slice(), [Call::Post { .. }]));
            }
            Verdict::Passed | Verdict::Rejected(_) => unreachable!(),
        }
    }
}

#[test]
fn an_answer_counts_for_its_asking_alone() {
    let mut machine = machine(false);
    machine.ask(vec![subject("a", 1)], at(0));
    let (number, _) = batch(&mut machine, at(0));
    // The operation ends, and another begins on the pod, before the answer is there.
    machine.ask(vec![subject("a", 2)], at(1));
    machine.posted(number, "trace", Ok(done()), at(2), 0.5);
    assert!(matches!(machine.verdict(&subject("a", 2)), Verdict::Waiting(_)));
    let (again, _) = batch(&mut machine, at(2));
    machine.posted(number, "trace", Ok(done()), at(3), 0.5);
    assert!(matches!(machine.verdict(&subject("a", 2)), Verdict::Waiting(_)), "an answer came twice");
    machine.posted(again, "trace", Ok(task("t", &[])), at(3), 0.5);
    let (number, _) = poll(&mut machine, at(8));
    machine.ask(vec![subject("a", 3)], at(9));
    machine.polled(number, Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }), at(9));
    assert!(matches!(machine.verdict(&subject("a", 3)), Verdict::Waiting(_)));
    // Nor does a pass outlive its asking.
    let (number, _) = batch(&mut machine, at(9));
    machine.posted(number, "trace", Ok(done()), at(9), 0.5);
    assert_eq!(machine.verdict(&subject("a", 3)), Verdict::Passed);
    machine.ask(vec![], at(10));
    machine.ask(vec![subject("a", 3)], at(10));
    assert_ne!(machine.verdict(&subject("a", 3)), Verdict::Passed);
}

#[test]
fn tasks_with_equal_ids_are_kept_apart() {
    let mut machine = polling(false, &["a"], &[]);
    machine.ask(subjects(&["a", "b"]), at(1));
    let (number, _) = batch(&mut machine, at(1));
    machine.posted(number, "trace", Ok(task("t", &[])), at(1), 0.5);
    assert_eq!(machine.status(at(1)).task_states.len(), 2);
    let (first, _) = poll(&mut machine, at(5));
    let (second, _) = poll(&mut machine, at(6));
    machine.polled(second, Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }), at(7));
    assert_eq!(passed(&machine, &["a", "b"]), [false, true]);
    machine.polled(first, Ok(PollAnswer { stop: true, ..PollAnswer::default() }), at(7));
    assert_eq!(passed(&machine, &["a", "b"]), [false, true]);
}

#[test]
fn tasks_go_on_after_a_restart() {
    let mut before = polling(false, &["a", "b"], &["a"]);
    let stored = before.status(at(3));
    let mut machine = Machine::new("n".to_owned(), settings(false), Some(&stored), at(3));
    machine.ask(subjects(&["a", "b"]), at(3));
    assert_eq!(passed(&machine, &["a", "b"]), [true, false]);
    assert_eq!(machine.status(at(3)), stored);
    assert_eq!(machine.next(at(3)).wake_at, Some(at(5)));
    // However long nobody was there: it is asked for before it is given up.
    let mut late = Machine::new("n".to_owned(), settings(false), Some(&stored), at(300));
    late.ask(subjects(&["a", "b"]), at(300));
    let (number, _) = poll(&mut late, at(300));
    late.polled(number, Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }), at(301));
    assert_eq!(passed(&late, &["a", "b"]), [true, true]);
    // Another operation on the same pods has nothing of it.
    let mut other = Machine::new("n".to_owned(), settings(false), Some(&stored), at(3));
    other.ask(vec![subject("a", 2), subject("b", 2)], at(3));
    assert_eq!(batch(&mut other, at(3)).1, ["a", "b"]);
}

#[test]
fn tasks_of_which_nobody_knows_for_whom_are_left() {
    let mut stored = polling(false, &["a"], &[]).status(at(0));
    for askings in
        [vec![], names(&["x"]), names(&["0000000000000001", "0000000000000002"]), names(&["+00000000000001"])]
    {
        stored.task_states[0].askings = askings;
        let mut machine = Machine::new("n".to_owned(), settings(false), Some(&stored), at(1));
        machine.ask(subjects(&["a"]), at(1));
        assert_eq!(batch(&mut machine, at(1)).1, ["a"]);
        assert_eq!(machine.status(at(1)).history.len(), 1);
    }
}

#[test]
fn another_place_is_asked_anew() {
    let mut machine = polling(false, &["a", "b"], &["a"]);
    machine.ask(subjects(&["a", "b", "c"]), at(1));
    let (number, _) = batch(&mut machine, at(1));
    machine.configure(Settings { place: "there".to_owned(), ..settings(false) }, at(2));
    assert_eq!(batch(&mut machine, at(2)).1, ["b", "c"]);
    machine.posted(number, "trace", Ok(done()), at(2), 0.5);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, false, false]);
}

#[test]
fn records_are_few() {
    let mut machine = polling(false, &["a"], &[]);
    let mut changes = 0;
    let mut status = WebhookStatus::default();
    for second in (5..60).step_by(5) {
        let (number, _) = poll(&mut machine, at(second));
        machine.polled(
            number,
            Ok(PollAnswer { message: "soon".to_owned(), ..PollAnswer::default() }),
            at(second),
        );
        let now = machine.status(at(second));
        changes += usize::from(now != status);
        status = now;
    }
    assert_eq!(changes, 1, "nothing new was put on record");
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut machine = polling(false, &["a"], &[]);
    assert_eq!(machine.next(at(-100_000)).wake_at, Some(at(-99_995)));
    poll(&mut machine, at(-99_995));
}

#[test]
fn history_is_bounded() {
    let mut machine = machine(false);
    let pods: Vec<_> = (0..300).map(|index| subject(&format!("pod-{index}"), 1)).collect();
    for round in 0..40 {
        machine.ask(pods.iter().map(|pod| subject(&pod.pod, round)).collect(), at(round));
        let (number, _) = batch(&mut machine, at(round));
        machine.posted(number, "trace", Ok(task("t", &[])), at(round), 0.5);
    }
    let status = machine.status(at(40));
    let names: usize = status.history.iter().map(|task| task.processing.len() + task.approved.len()).sum();
    assert_eq!((status.task_states.len(), status.history.len(), names), (1, 16, 256));
}
