//! Which calls to make at a given time.

use std::collections::BTreeSet;

use podward_core::UnixNanos;

use super::state::{MAX_TASKS, WebhookMachine};
use super::task::TaskPod;
use super::waiting_pod::{CheckKey, WaitingPod};

/// Tasks that are polled at the same time.
const MAX_CONCURRENT_POLLS: usize = 4;
/// No batch waits longer than this, in nanoseconds, whatever happens to the clock. Longer than any delay of
/// [`RETRY`](super::RETRY).
const LONGEST_WAIT: i64 = 60_000_000_000;

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebhookCall {
    /// Send these pods, each name once, the first ones first. Report those that are not sent to
    /// [`leave_out`](WebhookMachine::leave_out).
    Post { number: u64, pods: Vec<WaitingPod> },
    /// Ask for the progress of a task.
    Poll { number: u64, task: String },
}

/// The calls to make now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NextCalls {
    pub(crate) calls: Vec<WebhookCall>,
    /// When to ask for calls again, if nothing happens before.
    pub(crate) wake_at: Option<UnixNanos>,
    /// True if verdicts have changed.
    pub(crate) is_news: bool,
}

impl NextCalls {
    fn wake(&mut self, at: UnixNanos) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }
}

impl WebhookMachine {
    /// Returns the calls to make at `now`. Report the answer of each to [`post_answered`](Self::post_answered) or
    /// [`poll_answered`](Self::poll_answered).
    pub(crate) fn next_calls(&mut self, now: UnixNanos) -> NextCalls {
        let mut next = NextCalls { is_news: self.end_late_tasks(now), ..NextCalls::default() };
        self.poll(now, &mut next);
        self.post(now, &mut next);
        next
    }

    /// Ends the tasks that timed out. Returns true if there were any.
    fn end_late_tasks(&mut self, now: UnixNanos) -> bool {
        let Some(polling) = self.settings.polling else { return false };
        let (late, rest): (Vec<_>, _) =
            std::mem::take(&mut self.tasks).into_iter().partition(|task| task.is_late(polling, now));
        self.tasks = rest;
        let is_news = !late.is_empty();
        for mut task in late {
            task.message = format!("Polling Timeout. {}", task.message);
            match task.error.clone().filter(|_| self.settings.ignores_failures) {
                Some(error) => {
                    let failure = format!("{}: {error}", task.message);
                    self.pass_all(&mut task, &failure);
                }
                None => self.refuse(&task, false),
            }
            self.end(task, now);
        }
        is_news
    }

    fn poll(&mut self, now: UnixNanos, next: &mut NextCalls) {
        let Some(polling) = self.settings.polling else { return };
        let in_flight = self.tasks.iter().filter(|task| task.in_flight).count();
        let mut free = MAX_CONCURRENT_POLLS.saturating_sub(in_flight);
        for task in self.tasks.iter_mut().filter(|task| !task.in_flight) {
            // Polling continues when the clock is set back.
            task.next_poll = task.next_poll.min(UnixNanos(now.0.saturating_add(polling.interval)));
            if task.next_poll > now {
                let until =
                    if task.is_polled { task.next_poll.min(task.deadline(polling)) } else { task.next_poll };
                next.wake(until);
            } else if free > 0 {
                free -= 1;
                (task.in_flight, task.is_polled) = (true, true);
                next.calls.push(WebhookCall::Poll { number: task.number, task: task.id.clone() });
            }
        }
    }

    fn post(&mut self, now: UnixNanos, next: &mut NextCalls) {
        if self.batch.is_some() || self.tasks.len() >= MAX_TASKS {
            return;
        }
        let in_tasks: BTreeSet<CheckKey> =
            self.tasks.iter().flat_map(|task| &task.processing).map(|pod| pod.key).collect();
        let is_free = |key: &CheckKey| !self.passed.contains_key(key) && !in_tasks.contains(key);
        let free: Vec<&WaitingPod> = self.pods.iter().filter(|pod| is_free(&pod.key)).collect();
        if free.is_empty() {
            return;
        }
        let is_new = free.iter().any(|pod| !self.refused.contains_key(&pod.key));
        let from = if is_new { self.blocked_until } else { self.blocked_until.max(self.retry_at) };
        let from = from.min(UnixNanos(now.0.saturating_add(LONGEST_WAIT)));
        if from > now {
            next.wake(from);
            return;
        }
        // A request may have no room for all. So the pods that the webhook refused last are the last.
        let mut free = free;
        free.sort_by_key(|pod| self.refused.get(&pod.key).map(|refusal| refusal.number));
        let batch = free.iter().map(|pod| TaskPod::from(*pod)).collect();
        let mut names = BTreeSet::new();
        let pods = free.into_iter().filter(|pod| names.insert(&pod.name)).cloned().collect();
        let number = self.next_number();
        self.batch = Some((number, batch));
        next.calls.push(WebhookCall::Post { number, pods });
    }
}
