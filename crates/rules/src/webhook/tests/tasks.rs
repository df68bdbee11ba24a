//! The state machine: tasks, and the check requests that answers count for.

use super::super::machine::{WebhookCall, WebhookReason, WebhookVerdict};
use super::super::wire::PollAnswer;
use super::machine_fixture::{
    batch, is_rejected, names, no_server, passed, poll, polling, reason, success, task,
};
use super::{at, machine, nominal_delay, waiting, waiting_pod};

#[test]
fn a_task_is_polled_until_it_is_finished() {
    let mut machine = polling(false, &["a", "b", "c"], &["a"]);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, false, false]);
    assert_eq!(machine.next_calls(at(0)).wake_at, Some(at(5)));
    let (number, id) = poll(&mut machine, at(5));
    assert_eq!(id, "t");
    assert!(machine.next_calls(at(6)).calls.is_empty(), "the poll is in flight");
    // Approvals add up, also without success.
    let some = PollAnswer {
        finished_names: names(&["b", "unknown"]),
        message: "half".to_owned(),
        ..PollAnswer::default()
    };
    machine.poll_answered(number, Ok(some), at(6));
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, true, false]);
    assert_eq!(
        reason(&machine, "c"),
        "Not approved by webhook shop/rules/outside, polling task t is running half"
    );
    assert!(!is_rejected(&machine, "c"));
    // A failed poll does not end the task.
    let (number, _) = poll(&mut machine, at(11));
    machine.poll_answered(number, Err(no_server()), at(12));
    assert!(reason(&machine, "c").ends_with("polling task t error, no server"));
    let (number, _) = poll(&mut machine, at(17));
    machine.poll_answered(
        number,
        Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }),
        at(17),
    );
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, true, true]);
    let status = machine.status(at(17));
    assert_eq!((status.task_states.len(), status.history.len()), (0, 1));
    assert_eq!(status.history[0].approved, ["a", "b", "c"]);
    assert!(machine.status(at(17 + 601)).history.is_empty(), "it is kept for 10 minutes");
}

#[test]
fn finished_without_success_lets_no_pod_pass() {
    let mut machine = polling(false, &["a"], &[]);
    let (number, _) = poll(&mut machine, at(5));
    machine.poll_answered(number, Ok(PollAnswer { finished: true, ..PollAnswer::default() }), at(5));
    assert_eq!(passed(&machine, &["a"]), [false]);
}

#[test]
fn pods_that_a_stopped_task_has_not_approved_are_sent_again() {
    let mut machine = polling(true, &["a", "b"], &[]);
    let (number, _) = poll(&mut machine, at(5));
    let stop = PollAnswer {
        stop: true,
        finished_names: names(&["a"]),
        message: "enough".to_owned(),
        ..PollAnswer::default()
    };
    machine.poll_answered(number, Ok(stop), at(5));
    assert_eq!(passed(&machine, &["a", "b"]), [true, false]);
    assert_eq!(
        reason(&machine, "b"),
        "Not approved by webhook shop/rules/outside, polling task t stopped enough"
    );
    assert!(is_rejected(&machine, "b"));
    assert_eq!(batch(&mut machine, at(5)).1, ["b"]);
}

#[test]
fn a_task_times_out() {
    // If the last poll was answered, the pods are refused; if it failed, the failure policy applies.
    for (ignores_failures, fails, is_passed) in
        [(true, false, false), (true, true, true), (false, true, false)]
    {
        let mut machine = polling(ignores_failures, &["a"], &[]);
        let (number, _) = poll(&mut machine, at(59));
        let answer = if fails {
            Err(no_server())
        } else {
            Ok(PollAnswer { message: "later".to_owned(), ..PollAnswer::default() })
        };
        machine.poll_answered(number, answer, at(59));
        assert_eq!(machine.next_calls(at(59)).wake_at, Some(at(60)));
        let next = machine.next_calls(at(60));
        assert!(next.is_news);
        match machine.verdict(&waiting_pod("a", 1)) {
            WebhookVerdict::Ignored(failure) => {
                assert!(is_passed && failure.starts_with("Polling Timeout. soon: no server"))
            }
            WebhookVerdict::Waiting(WebhookReason { text: reason, .. }) => {
                assert!(
                    !is_passed && reason.contains("polling task t stopped Polling Timeout. "),
                    "{reason}"
                );
                assert!(matches!(next.calls.as_slice(), [WebhookCall::Post { .. }]));
            }
            other => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn an_answer_counts_for_its_check_request_only() {
    let mut machine = machine(false);
    machine.set_waiting(vec![waiting_pod("a", 1)], at(0));
    let (number, _) = batch(&mut machine, at(0));
    // The operation ends, and another one begins on the pod before the answer.
    machine.set_waiting(vec![waiting_pod("a", 2)], at(1));
    machine.post_answered(number, "trace", Ok(success()), at(2), nominal_delay);
    assert_eq!(machine.verdict(&waiting_pod("a", 2)), WebhookVerdict::NotAnswered);
    let (again, _) = batch(&mut machine, at(2));
    machine.post_answered(number, "trace", Ok(success()), at(3), nominal_delay);
    assert_eq!(
        machine.verdict(&waiting_pod("a", 2)),
        WebhookVerdict::NotAnswered,
        "the answer was already processed"
    );
    machine.post_answered(again, "trace", Ok(task("t", &[])), at(3), nominal_delay);
    let (number, _) = poll(&mut machine, at(8));
    machine.set_waiting(vec![waiting_pod("a", 3)], at(9));
    machine.poll_answered(
        number,
        Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }),
        at(9),
    );
    assert_eq!(machine.verdict(&waiting_pod("a", 3)), WebhookVerdict::NotAnswered);
    // A pass ends with its check request.
    let (number, _) = batch(&mut machine, at(9));
    machine.post_answered(number, "trace", Ok(success()), at(9), nominal_delay);
    assert_eq!(machine.verdict(&waiting_pod("a", 3)), WebhookVerdict::Passed);
    machine.set_waiting(vec![], at(10));
    machine.set_waiting(vec![waiting_pod("a", 3)], at(10));
    assert_ne!(machine.verdict(&waiting_pod("a", 3)), WebhookVerdict::Passed);
}

#[test]
fn tasks_with_equal_ids_are_separate() {
    let mut machine = polling(false, &["a"], &[]);
    machine.set_waiting(waiting(&["a", "b"]), at(1));
    let (number, _) = batch(&mut machine, at(1));
    machine.post_answered(number, "trace", Ok(task("t", &[])), at(1), nominal_delay);
    assert_eq!(machine.status(at(1)).task_states.len(), 2);
    let (first, _) = poll(&mut machine, at(5));
    let (second, _) = poll(&mut machine, at(6));
    machine.poll_answered(
        second,
        Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }),
        at(7),
    );
    assert_eq!(passed(&machine, &["a", "b"]), [false, true]);
    machine.poll_answered(first, Ok(PollAnswer { stop: true, ..PollAnswer::default() }), at(7));
    assert_eq!(passed(&machine, &["a", "b"]), [false, true]);
}
