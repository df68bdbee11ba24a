//! The state machine: restarts, changed settings, and the stored status.

use podward_api::pod_transition_rule::WebhookStatus;

use super::super::machine::{WebhookMachine, WebhookSettings};
use super::super::wire::PollAnswer;
use super::machine_fixture::{batch, names, passed, poll, polling, success, task};
use super::{at, machine, nominal_delay, settings, waiting, waiting_pod};

#[test]
fn tasks_continue_after_a_restart() {
    let mut before = polling(false, &["a", "b"], &["a"]);
    let stored = before.status(at(3));
    let mut machine = WebhookMachine::new("n".to_owned(), settings(false), Some(&stored), at(3));
    machine.set_waiting(waiting(&["a", "b"]), at(3));
    assert_eq!(passed(&machine, &["a", "b"]), [true, false]);
    assert_eq!(machine.status(at(3)), stored);
    assert_eq!(machine.next_calls(at(3)).wake_at, Some(at(5)));
    // After a long restart the task is polled before it times out.
    let mut late = WebhookMachine::new("n".to_owned(), settings(false), Some(&stored), at(300));
    late.set_waiting(waiting(&["a", "b"]), at(300));
    let (number, _) = poll(&mut late, at(300));
    late.poll_answered(
        number,
        Ok(PollAnswer { success: true, finished: true, ..PollAnswer::default() }),
        at(301),
    );
    assert_eq!(passed(&late, &["a", "b"]), [true, true]);
    // The task does not count for other operations on the same pods.
    let mut other = WebhookMachine::new("n".to_owned(), settings(false), Some(&stored), at(3));
    other.set_waiting(vec![waiting_pod("a", 2), waiting_pod("b", 2)], at(3));
    assert_eq!(batch(&mut other, at(3)).1, ["a", "b"]);
}

#[test]
fn tasks_without_valid_keys_are_dropped() {
    let mut stored = polling(false, &["a"], &[]).status(at(0));
    for requests in
        [vec![], names(&["x"]), names(&["0000000000000001", "0000000000000002"]), names(&["+00000000000001"])]
    {
        stored.task_states[0].requests = requests;
        let mut machine = WebhookMachine::new("n".to_owned(), settings(false), Some(&stored), at(1));
        machine.set_waiting(waiting(&["a"]), at(1));
        assert_eq!(batch(&mut machine, at(1)).1, ["a"]);
        assert_eq!(machine.status(at(1)).history.len(), 1);
    }
}

#[test]
fn another_address_is_called_again_for_all_pods() {
    let mut machine = polling(false, &["a", "b"], &["a"]);
    machine.set_waiting(waiting(&["a", "b", "c"]), at(1));
    let (number, _) = batch(&mut machine, at(1));
    machine.configure(WebhookSettings { address: "there".to_owned(), ..settings(false) }, at(2));
    assert_eq!(batch(&mut machine, at(2)).1, ["a", "b", "c"]);
    machine.post_answered(number, "trace", Ok(success()), at(2), nominal_delay);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [false, false, false]);
}

#[test]
fn polls_without_news_are_rarely_stored() {
    let mut machine = polling(false, &["a"], &[]);
    let mut changes = 0;
    let mut status = WebhookStatus::default();
    for second in (5..60).step_by(5) {
        let (number, _) = poll(&mut machine, at(second));
        machine.poll_answered(
            number,
            Ok(PollAnswer { message: "soon".to_owned(), ..PollAnswer::default() }),
            at(second),
        );
        let now = machine.status(at(second));
        changes += usize::from(now != status);
        status = now;
    }
    assert_eq!(changes, 1, "a poll without news was stored");
}

#[test]
fn polling_continues_when_the_clock_is_set_back() {
    let mut machine = polling(false, &["a"], &[]);
    assert_eq!(machine.next_calls(at(-100_000)).wake_at, Some(at(-99_995)));
    poll(&mut machine, at(-99_995));
}

#[test]
fn history_is_bounded() {
    let mut machine = machine(false);
    let pods: Vec<_> = (0..300).map(|index| waiting_pod(&format!("pod-{index}"), 1)).collect();
    for round in 0..40 {
        machine.set_waiting(pods.iter().map(|pod| waiting_pod(&pod.name, round)).collect(), at(round));
        let (number, _) = batch(&mut machine, at(round));
        machine.post_answered(number, "trace", Ok(task("t", &[])), at(round), nominal_delay);
    }
    let status = machine.status(at(40));
    let names: usize = status.history.iter().map(|task| task.processing.len() + task.approved.len()).sum();
    assert_eq!((status.task_states.len(), status.history.len(), names), (1, 16, 256));
}
