//! What the answers of a webhook mean.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use podward_core::UnixNanos;

use super::super::wire::{AnswerProblem, PollAnswer, PostAnswer, WebhookFailure};
use super::reason::{WebhookFingerprint, WebhookReason};
use super::state::{PodRefusal, WebhookMachine};
use super::task::{TaskPod, WebhookTask};

/// Pods that a webhook refused are sent again after this time, as by KusionStack, in nanoseconds.
const REFUSED_DELAY: i64 = 5_000_000_000;
/// The longest delay of pods that are too large, in nanoseconds. An event of the pod need not be one of its parameters.
const LONGEST_UNSENT_DELAY: i64 = 30_000_000_000;

impl WebhookMachine {
    /// Takes the pods with the names in `unsent` out of the batch `number`, before its answer: they were not sent.
    /// Those with a text are refused with it, and sent again after a while. The others are in the next batch. Returns true
    /// if verdicts have changed.
    pub(crate) fn leave_out(
        &mut self,
        number: u64,
        unsent: &BTreeMap<String, Option<String>>,
        now: UnixNanos,
    ) -> bool {
        let Some((_, batch)) = self.batch.as_mut().filter(|(batch, _)| *batch == number) else {
            return false;
        };
        let mut is_news = false;
        for pod in batch.extract_if(.., |pod| unsent.contains_key(&pod.name)) {
            let Some(Some(text)) = unsent.get(&pod.name) else { continue };
            let fingerprint = WebhookFingerprint::CallFailed(text.clone());
            let text = format!("Webhook {} can't be called: {text}", self.name);
            let reason = WebhookReason { text, fingerprint: fingerprint.clone() };
            let before = self.refused.insert(pod.key, PodRefusal { reason, is_rejected: false, number });
            is_news |= before.is_none_or(|before| before.reason.fingerprint != fingerprint);
            self.retry_at = self.retry_at.max(UnixNanos(now.0.saturating_add(REFUSED_DELAY)));
        }
        is_news
    }

    /// Processes the answer to a batch. `trace` is the id that the batch was sent with. `delay_after` returns the delay
    /// of the next batch after a number of failures in a row.
    pub(crate) fn post_answered(
        &mut self,
        number: u64,
        trace: &str,
        answer: Result<PostAnswer, WebhookFailure>,
        now: UnixNanos,
        delay_after: impl FnOnce(u32) -> Duration,
    ) {
        let Some((_, batch)) = self.batch.take_if(|(batch, _)| *batch == number) else { return };
        if batch.is_empty() {
            // No pod was sent, because each is too large.
            let delay = REFUSED_DELAY.saturating_mul(1 << self.unsent.min(8)).min(LONGEST_UNSENT_DELAY);
            self.unsent = self.unsent.saturating_add(1);
            self.retry_at = self.retry_at.max(UnixNanos(now.0.saturating_add(delay)));
            return;
        }
        self.unsent = 0;
        let name = self.name.clone();
        let for_rule = |answer: PostAnswer| answer.for_rule(self.settings.polling.is_some());
        let unusable = |problem: AnswerProblem| WebhookFailure::Webhook(problem.to_string());
        let answer = answer.and_then(|answer| for_rule(answer).map_err(unusable));
        let PostAnswer { success, message, finished_names, task } = match answer {
            Ok(answer) => answer,
            Err(failure) => return self.post_failed(number, &batch, &failure, trace, now, delay_after),
        };
        self.failures = 0;
        self.blocked_until = UnixNanos(i64::MIN);
        let running = task.clone().filter(|_| success);
        let finished: BTreeSet<String> = finished_names.into_iter().collect();
        let passes = |pod: &TaskPod| (success && running.is_none()) || finished.contains(&pod.name);
        let (passed, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(passes);
        self.pass(&passed, None);
        match running {
            Some(id) => self.begin(id, others, passed, message, now),
            None => {
                let task = task.unwrap_or_default();
                let text =
                    format!("Webhook check {name} rejected, traceId {trace}, taskId {task}, msg: {message}");
                let reason = WebhookReason { text, fingerprint: WebhookFingerprint::Rejected(message) };
                let refusal = PodRefusal { reason, is_rejected: true, number };
                self.refused.extend(others.iter().map(|pod| (pod.key, refusal.clone())));
                self.retry_at = UnixNanos(now.0.saturating_add(REFUSED_DELAY));
            }
        }
    }

    fn post_failed(
        &mut self,
        number: u64,
        batch: &[TaskPod],
        failure: &WebhookFailure,
        trace: &str,
        now: UnixNanos,
        delay_after: impl FnOnce(u32) -> Duration,
    ) {
        let text = format!("Fail to do webhook request {}, {}, traceId {trace}", self.name, failure.text());
        if self.settings.ignores_failures && failure.is_of_webhook() {
            self.pass(batch, Some(&text));
            return;
        }
        let fingerprint = WebhookFingerprint::CallFailed(failure.text().to_owned());
        let refusal = PodRefusal { reason: WebhookReason { text, fingerprint }, is_rejected: false, number };
        self.refused.extend(batch.iter().map(|pod| (pod.key, refusal.clone())));
        self.failures = self.failures.saturating_add(1);
        let delay = i64::try_from(delay_after(self.failures).as_nanos()).unwrap_or(i64::MAX);
        self.blocked_until = UnixNanos(now.0.saturating_add(delay));
    }

    fn begin(
        &mut self,
        id: String,
        processing: Vec<TaskPod>,
        approved: Vec<TaskPod>,
        message: String,
        now: UnixNanos,
    ) {
        let Some(polling) = self.settings.polling else { return };
        let number = self.next_number();
        let task = WebhookTask {
            number,
            id,
            processing,
            approved,
            began: now,
            stored_poll: None,
            message,
            error: None,
            next_poll: UnixNanos(now.0.saturating_add(polling.interval)),
            in_flight: false,
            is_polled: true,
        };
        for pod in &task.processing {
            self.refused.remove(&pod.key);
        }
        if task.processing.is_empty() { self.end(task, now) } else { self.tasks.push(task) }
    }

    /// Processes the answer to the poll of a task.
    pub(crate) fn poll_answered(
        &mut self,
        number: u64,
        answer: Result<PollAnswer, WebhookFailure>,
        now: UnixNanos,
    ) {
        let Some(polling) = self.settings.polling else { return };
        let Some(index) = self.tasks.iter().position(|task| task.number == number) else { return };
        let mut task = self.tasks.remove(index);
        task.in_flight = false;
        task.next_poll = UnixNanos(now.0.saturating_add(polling.interval));
        match answer {
            Err(failure) => {
                task.error = Some(failure.text().to_owned());
                self.tasks.insert(index, task);
            }
            Ok(PollAnswer { success, message, finished, finished_names, stop }) => {
                let names: BTreeSet<String> = finished_names.into_iter().collect();
                let passes = |pod: &TaskPod| (success && finished) || names.contains(&pod.name);
                let (passed, processing): (Vec<_>, _) =
                    std::mem::take(&mut task.processing).into_iter().partition(passes);
                let is_news = !passed.is_empty() || task.message != message;
                (task.processing, task.message, task.error) = (processing, message, None);
                self.pass(&passed, None);
                task.approved.extend(passed);
                task.note_poll(now, is_news);
                if stop || task.processing.is_empty() {
                    self.refuse(&task, true);
                    self.end(task, now);
                } else {
                    self.tasks.insert(index, task);
                }
            }
        }
    }
}
