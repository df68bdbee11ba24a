//! The state machine: batches, and their failures.

use std::collections::BTreeMap;

use podward_core::UnixNanos;
use podward_runtime::retry;

use super::super::machine::{RETRY, WebhookMachine, WebhookSettings, WebhookVerdict};
use super::super::wire::{PostAnswer, WebhookFailure};
use super::machine_fixture::{batch, is_rejected, names, no_server, passed, reason, success, task};
use super::{SECOND, at, machine, nominal_delay, settings, waiting, waiting_pod};

#[test]
fn all_waiting_pods_go_into_one_batch_and_pass_together() {
    let mut machine = machine(false);
    machine.set_waiting(waiting(&["a", "b"]), at(0));
    let (number, pods) = batch(&mut machine, at(0));
    assert_eq!(pods, ["a", "b"]);
    assert_eq!(machine.verdict(&waiting_pod("a", 1)), WebhookVerdict::NotAnswered);
    // While the batch is in flight nothing else is sent. A pod that starts to wait is in the next batch.
    machine.set_waiting(waiting(&["a", "b", "c"]), at(1));
    assert!(machine.next_calls(at(1)).calls.is_empty());
    machine.post_answered(number, "trace", Ok(success()), at(2), nominal_delay);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, true, false]);
    assert_eq!(batch(&mut machine, at(2)).1, ["c"]);
}

#[test]
fn what_passed_is_asked_again_when_the_webhook_is_another_one_or_its_failures_count() {
    let may_go = |machine: &WebhookMachine| {
        let verdict = machine.verdict(&waiting(&["a"])[0]);
        matches!(verdict, WebhookVerdict::Passed | WebhookVerdict::Ignored(_))
    };
    for ignores_failures in [false, true] {
        let mut machine = machine(ignores_failures);
        machine.set_waiting(waiting(&["a"]), at(0));
        let (number, _) = batch(&mut machine, at(0));
        let answer = if ignores_failures { Err(no_server()) } else { Ok(success()) };
        machine.post_answered(number, "trace", answer, at(1), nominal_delay);
        assert!(may_go(&machine));
        machine.configure(settings(ignores_failures), at(2));
        assert!(may_go(&machine), "nothing has changed");
        let elsewhere = WebhookSettings { address: "there".to_owned(), ..settings(false) };
        let changed = if ignores_failures { settings(false) } else { elsewhere };
        machine.configure(changed, at(40));
        assert!(!may_go(&machine));
        assert_eq!(batch(&mut machine, at(40)).1, ["a"]);
    }
}

#[test]
fn consulting_again_changes_nothing_for_a_rule_without_polls() {
    let plain = || WebhookSettings { polling: None, ..settings(false) };
    let mut machine = WebhookMachine::new("shop/rules/outside".to_owned(), plain(), None, at(0));
    let consult = |machine: &mut WebhookMachine, now| {
        machine.configure(plain(), now);
        machine.set_waiting(waiting(&["a"]), now);
    };
    consult(&mut machine, at(0));
    let (number, _) = batch(&mut machine, at(0));
    consult(&mut machine, at(1));
    assert!(machine.next_calls(at(1)).calls.is_empty(), "the batch is in flight");
    machine.post_answered(number, "trace", Err(no_server()), at(2), nominal_delay);
    consult(&mut machine, at(2));
    assert!(reason(&machine, "a").contains("no server"));
    assert_eq!(machine.next_calls(at(2)).wake_at, Some(at(3)), "the next batch is delayed");
    let (number, _) = batch(&mut machine, at(3));
    consult(&mut machine, at(3));
    machine.post_answered(number, "trace", Ok(success()), at(4), nominal_delay);
    assert_eq!(passed(&machine, &["a"]), [true]);
}

#[test]
fn a_refused_pod_is_sent_again_after_five_seconds_or_with_a_new_pod() {
    let mut machine = machine(false);
    machine.set_waiting(waiting(&["a", "b"]), at(0));
    let (number, _) = batch(&mut machine, at(0));
    let answer = PostAnswer {
        finished_names: names(&["a", "unknown"]),
        message: "no".to_owned(),
        ..PostAnswer::default()
    };
    machine.post_answered(number, "trace", Ok(answer.clone()), at(0), nominal_delay);
    assert_eq!(passed(&machine, &["a", "b"]), [true, false]);
    assert_eq!(
        reason(&machine, "b"),
        "Webhook check shop/rules/outside rejected, traceId trace, taskId , msg: no"
    );
    assert!(is_rejected(&machine, "b"));
    let waits = machine.next_calls(at(4));
    assert_eq!((waits.calls, waits.wake_at), (vec![], Some(at(5))));
    let (number, pods) = batch(&mut machine, at(5));
    assert_eq!(pods, ["b"]);
    machine.post_answered(number, "trace", Ok(answer), at(5), nominal_delay);
    machine.set_waiting(waiting(&["a", "b", "c"]), at(6));
    assert_eq!(batch(&mut machine, at(6)).1, ["c", "b"]);
}

/// Returns the argument of `leave_out`: pods for the next batch, and pods that are too large.
fn unsent(next: &[&str], too_large: &[&str]) -> BTreeMap<String, Option<String>> {
    let next = next.iter().map(|pod| ((*pod).to_owned(), None));
    let too_large = too_large.iter().map(|pod| ((*pod).to_owned(), Some("too large".to_owned())));
    next.chain(too_large).collect()
}

#[test]
fn pods_without_room_in_a_request_are_in_the_next_one() {
    let mut machine = machine(true);
    machine.set_waiting(waiting(&["a", "b", "c"]), at(0));
    let (number, _) = batch(&mut machine, at(0));
    machine.leave_out(number, &unsent(&["b", "c"], &[]), at(0));
    machine.post_answered(number, "trace", Ok(success()), at(0), nominal_delay);
    assert_eq!(passed(&machine, &["a", "b", "c"]), [true, false, false]);
    assert_eq!(machine.verdict(&waiting_pod("b", 1)), WebhookVerdict::NotAnswered);
    let (number, pods) = batch(&mut machine, at(0));
    assert_eq!(pods, ["b", "c"]);
    machine.leave_out(number, &unsent(&["c"], &[]), at(0));
    machine.post_answered(number, "trace", Err(no_server()), at(0), nominal_delay);
    assert!(matches!(machine.verdict(&waiting_pod("b", 1)), WebhookVerdict::Ignored(_)));
    assert_eq!(machine.verdict(&waiting_pod("c", 1)), WebhookVerdict::NotAnswered, "no failure concerns it");
}

/// Each request has room for one pod, and the webhook refuses all.
#[test]
fn refused_pods_take_turns() {
    let mut machine = machine(false);
    machine.set_waiting(waiting(&["a", "b", "c"]), at(0));
    let mut sent = Vec::new();
    for turn in 0..6 {
        let (number, pods) = batch(&mut machine, at(5 * turn));
        let others: Vec<&str> = pods[1..].iter().map(String::as_str).collect();
        machine.leave_out(number, &unsent(&others, &[]), at(5 * turn));
        machine.post_answered(number, "trace", Ok(PostAnswer::default()), at(5 * turn), nominal_delay);
        sent.push(pods[0].clone());
    }
    assert_eq!(sent, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn a_pod_that_fits_into_no_request_waits_whatever_the_policy() {
    let mut machine = machine(true);
    machine.set_waiting(waiting(&["a", "b"]), at(0));
    let (number, _) = batch(&mut machine, at(0));
    machine.leave_out(number, &unsent(&[], &["a"]), at(0));
    machine.post_answered(number, "trace", Ok(success()), at(0), nominal_delay);
    assert_eq!(passed(&machine, &["a", "b"]), [false, true]);
    assert_eq!(reason(&machine, "a"), "Webhook shop/rules/outside can't be called: too large");
    assert!(!is_rejected(&machine, "a"));
    // It is tried again after a while. That nothing was sent is no failure of the webhook.
    let waits = machine.next_calls(at(4));
    assert_eq!((waits.calls, waits.wake_at), (vec![], Some(at(5))));
    let (number, _) = batch(&mut machine, at(5));
    machine.leave_out(number, &unsent(&[], &["a"]), at(5));
    machine.post_answered(number, "trace", Err(WebhookFailure::TooLarge), at(5), nominal_delay);
    machine.set_waiting(waiting(&["a", "c"]), at(5));
    assert_eq!(batch(&mut machine, at(5)).1, ["c", "a"]);
}

/// Only an event of the pod or the rule makes it smaller.
#[test]
fn a_pod_that_fits_into_no_request_is_tried_less_and_less_often() {
    let mut machine = machine(true);
    machine.set_waiting(waiting(&["a"]), at(0));
    let mut now = at(0);
    for pause in [5, 10, 20, 30, 30] {
        let (number, _) = batch(&mut machine, now);
        let is_news = machine.leave_out(number, &unsent(&[], &["a"]), now);
        assert_eq!(is_news, now == at(0), "verdicts change once");
        machine.post_answered(number, "trace", Err(WebhookFailure::TooLarge), now, nominal_delay);
        let next = UnixNanos(now.0 + pause * SECOND);
        assert_eq!(machine.next_calls(now).wake_at, Some(next));
        now = next;
    }
    // Another pod is sent at once, and so are all when the rule has changed.
    machine.set_waiting(waiting(&["a", "b"]), now);
    let (number, pods) = batch(&mut machine, now);
    assert_eq!(pods, ["b", "a"]);
    machine.leave_out(number, &unsent(&[], &["b", "a"]), now);
    machine.post_answered(number, "trace", Err(WebhookFailure::TooLarge), now, nominal_delay);
    assert!(machine.next_calls(now).calls.is_empty());
    machine.retry_too_large();
    assert_eq!(batch(&mut machine, now).1, ["a", "b"]);
}

#[test]
fn a_failure_passes_or_rejects_by_policy() {
    let mut ignoring = machine(true);
    ignoring.set_waiting(waiting(&["a"]), at(0));
    let (number, _) = batch(&mut ignoring, at(0));
    ignoring.post_answered(number, "trace", Err(no_server()), at(1), nominal_delay);
    let failure = "Fail to do webhook request shop/rules/outside, no server, traceId trace".to_owned();
    assert_eq!(ignoring.verdict(&waiting_pod("a", 1)), WebhookVerdict::Ignored(failure.clone()));

    let mut failing = machine(false);
    failing.set_waiting(waiting(&["a"]), at(0));
    let mut now = at(0);
    for pause in [1, 2, 4, 8, 16, 30, 30, 30] {
        let (number, _) = batch(&mut failing, now);
        failing.post_answered(number, "trace", Err(no_server()), now, nominal_delay);
        assert_eq!((reason(&failing, "a"), is_rejected(&failing, "a")), (failure.clone(), false));
        // A new pod does not shorten the delay.
        failing.set_waiting(waiting(&["a", "b"]), now);
        let next = UnixNanos(now.0 + pause * SECOND);
        assert_eq!(failing.next_calls(now).wake_at, Some(next));
        now = next;
    }
    let (number, _) = batch(&mut failing, now);
    failing.post_answered(number, "trace", Ok(success()), now, nominal_delay);
    assert_eq!(passed(&failing, &["a", "b"]), [true, true]);
}

#[test]
fn retries_are_spread() {
    for failures in 1..40 {
        let (delay, nominal) = (retry::delay_after(RETRY, failures), nominal_delay(failures));
        assert!((nominal / 2..=nominal).contains(&delay), "{failures}: {delay:?} of {nominal:?}");
    }
}

#[test]
fn a_local_failure_lets_no_pod_pass() {
    let mut machine = machine(true);
    machine.set_waiting(waiting(&["a"]), at(0));
    let (number, _) = batch(&mut machine, at(0));
    machine.post_answered(
        number,
        "trace",
        Err(WebhookFailure::Local("no pods".to_owned())),
        at(0),
        nominal_delay,
    );
    assert!(reason(&machine, "a").contains("no pods"));
    assert_eq!(batch(&mut machine, at(1)).1, ["a"]);
}

#[test]
fn an_unusable_task_is_a_failure() {
    for (settings, answer, words) in [
        (settings(false), task("", &[]), "names no task"),
        (WebhookSettings { polling: None, ..settings(false) }, task("t", &[]), "no clientConfig.poll"),
    ] {
        let mut machine = WebhookMachine::new("n".to_owned(), settings, None, at(0));
        machine.set_waiting(waiting(&["a"]), at(0));
        let (number, _) = batch(&mut machine, at(0));
        machine.post_answered(number, "trace", Ok(answer), at(0), nominal_delay);
        assert!(reason(&machine, "a").contains(words));
    }
}
