//! What the answers of a webhook mean.

use std::collections::BTreeSet;

use podward_core::UnixNanos;

use super::super::answer::{Failure, PollAnswer, PostAnswer};
use super::super::task::{Task, Waiter};
use super::{LAST_RETRY, Machine, Refused, SECOND};

/// When pods that a webhook has refused are sent again, as by KusionStack.
const REFUSED: i64 = 5 * SECOND;
/// When a webhook that has failed is asked again at first.
const FIRST_RETRY: i64 = SECOND;

impl Machine {
    /// The answer to a batch has come. `trace` is the id that it was sent with; `jitter`, from 0 to 1, keeps retries apart.
    pub(in super::super) fn posted(
        &mut self,
        number: u64,
        trace: &str,
        answer: Result<PostAnswer, Failure>,
        now: UnixNanos,
        jitter: f64,
    ) {
        let Some((_, batch)) = self.batch.take_if(|(batch, _)| *batch == number) else { return };
        let name = self.name.clone();
        let answer = answer.and_then(|answer| answer.for_rule(self.settings.poll.is_some()));
        let PostAnswer { success, message, finished_names, task } = match answer {
            Ok(answer) => answer,
            Err(failure) => return self.failed(batch, &failure, trace, now, jitter),
        };
        self.failures = 0;
        self.blocked_until = UnixNanos(i64::MIN);
        let goes_on = task.clone().filter(|_| success);
        let finished: BTreeSet<String> = finished_names.into_iter().collect();
        let passes = |waiter: &Waiter| (success && goes_on.is_none()) || finished.contains(&waiter.pod);
        let (passed, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(passes);
        self.pass(&passed, None);
        match goes_on {
            Some(id) => self.begin(id, others, passed, message, now),
            None => {
                let task = task.unwrap_or_default();
                let reason =
                    format!("Webhook check {name} rejected, traceId {trace}, taskId {task}, msg: {message}");
                let refused = Refused { reason, is_no: true };
                self.refused.extend(others.iter().map(|waiter| (waiter.key, refused.clone())));
                self.retry_at = UnixNanos(now.0.saturating_add(REFUSED));
            }
        }
    }

    fn failed(&mut self, batch: Vec<Waiter>, failure: &Failure, trace: &str, now: UnixNanos, jitter: f64) {
        let reason = format!("Fail to do webhook request {}, {}, traceId {trace}", self.name, failure.text());
        if self.settings.ignores_failures && failure.is_webhooks() {
            self.pass(&batch, Some(&reason));
            return;
        }
        let refused = Refused { reason, is_no: false };
        self.refused.extend(batch.into_iter().map(|waiter| (waiter.key, refused.clone())));
        let pause = FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(LAST_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.blocked_until =
            UnixNanos(now.0.saturating_add(scaled(pause, 0.8 + 0.4 * jitter.clamp(0.0, 1.0))));
    }

    fn begin(
        &mut self,
        id: String,
        processing: Vec<Waiter>,
        approved: Vec<Waiter>,
        message: String,
        now: UnixNanos,
    ) {
        let Some(times) = self.settings.poll else { return };
        let number = self.number();
        let task = Task {
            number,
            id,
            processing,
            approved,
            began: now,
            recorded: None,
            message,
            error: None,
            next_poll: UnixNanos(now.0.saturating_add(times.interval)),
            in_flight: false,
            is_asked: true,
        };
        for waiter in &task.processing {
            self.refused.remove(&waiter.key);
        }
        if task.processing.is_empty() { self.end(task, now) } else { self.tasks.push(task) }
    }

    /// The answer to the question how a task is going has come.
    pub(in super::super) fn polled(
        &mut self,
        number: u64,
        answer: Result<PollAnswer, Failure>,
        now: UnixNanos,
    ) {
        let Some(times) = self.settings.poll else { return };
        let Some(index) = self.tasks.iter().position(|task| task.number == number) else { return };
        let mut task = self.tasks.remove(index);
        task.in_flight = false;
        task.next_poll = UnixNanos(now.0.saturating_add(times.interval));
        match answer {
            Err(failure) => {
                task.error = Some(failure.text().to_owned());
                self.tasks.insert(index, task);
            }
            Ok(PollAnswer { success, message, finished, finished_names, stop }) => {
                let names: BTreeSet<String> = finished_names.into_iter().collect();
                let passes = |waiter: &Waiter| (success && finished) || names.contains(&waiter.pod);
                let (passed, processing): (Vec<_>, _) =
                    std::mem::take(&mut task.processing).into_iter().partition(passes);
                let is_news = !passed.is_empty() || task.message != message;
                (task.processing, task.message, task.error) = (processing, message, None);
                self.pass(&passed, None);
                task.approved.extend(passed);
                task.record(now, is_news);
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

/// Of a pause between 0 and minutes: no precision is lost that matters.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn scaled(pause: i64, by: f64) -> i64 {
    (pause as f64 * by) as i64
}
