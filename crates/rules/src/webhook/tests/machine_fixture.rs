//! Calls and answers for tests of the state machine.

use podward_core::UnixNanos;

use super::super::machine::{WebhookCall, WebhookMachine, WebhookVerdict};
use super::super::wire::{PostAnswer, WebhookFailure};
use super::{at, machine, nominal_delay, waiting, waiting_pod};

pub(super) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn success() -> PostAnswer {
    PostAnswer { success: true, ..PostAnswer::default() }
}

pub(super) fn task(id: &str, finished: &[&str]) -> PostAnswer {
    PostAnswer {
        success: true,
        task: Some(id.to_owned()),
        finished_names: names(finished),
        message: "soon".to_owned(),
    }
}

pub(super) fn no_server() -> WebhookFailure {
    WebhookFailure::Webhook("no server".to_owned())
}

/// Returns the number and the pods of the only call, a batch.
pub(super) fn batch(machine: &mut WebhookMachine, now: UnixNanos) -> (u64, Vec<String>) {
    match machine.next_calls(now).calls.as_slice() {
        [WebhookCall::Post { number, pods }] => (*number, pods.iter().map(|pod| pod.name.clone()).collect()),
        other => unreachable!("{other:?}"),
    }
}

/// Returns the number and the id of the only call, the poll of a task.
pub(super) fn poll(machine: &mut WebhookMachine, now: UnixNanos) -> (u64, String) {
    match machine.next_calls(now).calls.as_slice() {
        [WebhookCall::Poll { number, task }] => (*number, task.clone()),
        other => unreachable!("{other:?}"),
    }
}

pub(super) fn passed(machine: &WebhookMachine, pods: &[&str]) -> Vec<bool> {
    waiting(pods).iter().map(|subject| machine.verdict(subject) == WebhookVerdict::Passed).collect()
}

pub(super) fn reason(machine: &WebhookMachine, pod: &str) -> String {
    match machine.verdict(&waiting_pod(pod, 1)) {
        WebhookVerdict::Rejected(reason) | WebhookVerdict::Waiting(reason) => reason.text,
        other => unreachable!("{other:?}"),
    }
}

/// True if the webhook refused the pod.
pub(super) fn is_rejected(machine: &WebhookMachine, pod: &str) -> bool {
    matches!(machine.verdict(&waiting_pod(pod, 1)), WebhookVerdict::Rejected(_))
}

/// Returns a machine with `pods` in the task `t`, which has approved `finished`.
pub(super) fn polling(ignores_failures: bool, pods: &[&str], finished: &[&str]) -> WebhookMachine {
    let mut machine = machine(ignores_failures);
    machine.set_waiting(waiting(pods), at(0));
    let (number, _) = batch(&mut machine, at(0));
    machine.post_answered(number, "trace", Ok(task("t", finished)), at(0), nominal_delay);
    machine
}
