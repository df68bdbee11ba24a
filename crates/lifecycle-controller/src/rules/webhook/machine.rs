//! What to ask a rule's webhook when, and what its answers mean: a state machine without clock and I/O.
//!
//! At most one batch is on its way at a time; pods that come meanwhile make up the next. All pods go into it that have not passed and
//! are in no task, as in KusionStack. A task's pods are asked for in it until it ends; those that it has not approved by then are sent
//! anew.

mod answered;

use std::collections::{BTreeMap, BTreeSet};

use podward_api::pod_transition_rule::{TaskInfo, WebhookStatus};
use podward_core::UnixNanos;

use super::asking::{AskingKey, Subject};
use super::history::History;
use super::task::{Task, Waiter};

const SECOND: i64 = 1_000_000_000;
/// When a webhook that has failed is asked again at last.
const LAST_RETRY: i64 = 30 * SECOND;
/// Tasks that may go on at the same time. While there are as many, no batch is sent.
const MOST_TASKS: usize = 64;
/// Tasks that are asked for at the same time.
const MOST_POLLS: usize = 4;

/// How tasks are asked for, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollTimes {
    pub(super) interval: i64,
    pub(super) timeout: i64,
}

/// What of the rule matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Where the webhook is: URLs. Answers of another place say nothing.
    pub(super) place: String,
    /// Whether pods pass when it fails.
    pub(super) ignores_failures: bool,
    pub(super) poll: Option<PollTimes>,
}

/// What a webhook says to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may.
    Passed,
    /// It may, because the webhook failed and its failures are ignored. How it failed: for the record.
    Ignored(String),
    /// The webhook has said no. Why.
    Rejected(String),
    /// Not yet: it is being asked, takes its time, or can't be asked. Why.
    Waiting(String),
}

/// Something to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// About these pods, each name once.
    Post { number: u64, pods: Vec<Subject> },
    /// How a task is going.
    Poll { number: u64, task: String },
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) calls: Vec<Call>,
    /// When there is more, if nothing happens before.
    pub(super) wake_at: Option<UnixNanos>,
    /// Whether verdicts have changed.
    pub(super) is_news: bool,
}

/// Why a pod hasn't passed that is in no task.
#[derive(Clone, Debug)]
struct Refused {
    reason: String,
    /// Whether the webhook has said no, rather than nothing.
    is_no: bool,
}

/// The state of one rule's webhook.
#[derive(Debug)]
pub(super) struct Machine {
    /// `namespace/object/rule`, for messages.
    name: String,
    settings: Settings,
    subjects: Vec<Subject>,
    tasks: Vec<Task>,
    history: History,
    passed: BTreeMap<AskingKey, Option<String>>,
    refused: BTreeMap<AskingKey, Refused>,
    batch: Option<(u64, Vec<Waiter>)>,
    failures: u32,
    /// No batch is sent before.
    blocked_until: UnixNanos,
    /// When pods that were refused are sent again.
    retry_at: UnixNanos,
    last_number: u64,
}

impl Machine {
    /// Goes on from what is on record.
    pub(super) fn new(
        name: String,
        settings: Settings,
        stored: Option<&WebhookStatus>,
        now: UnixNanos,
    ) -> Self {
        let mut machine = Self {
            name,
            settings,
            subjects: Vec::new(),
            tasks: Vec::new(),
            history: History::default(),
            passed: BTreeMap::new(),
            refused: BTreeMap::new(),
            batch: None,
            failures: 0,
            blocked_until: UnixNanos(i64::MIN),
            retry_at: UnixNanos(i64::MIN),
            last_number: 0,
        };
        let stored = stored.cloned().unwrap_or_default();
        machine.history.resume(stored.history, now);
        for info in stored.task_states {
            let number = machine.number();
            let times = machine.settings.poll.filter(|_| machine.tasks.len() < MOST_TASKS);
            match times.and_then(|times| Task::resume(number, &info, times, now)) {
                Some(task) => {
                    let passed = task.approved.iter().map(|waiter| (waiter.key, None));
                    machine.passed.extend(passed);
                    machine.tasks.push(task);
                }
                None => machine.history.add(info, now),
            }
        }
        machine
    }

    /// The rule is this now.
    pub(super) fn configure(&mut self, settings: Settings, now: UnixNanos) {
        if self.settings.place != settings.place {
            self.batch = None;
            self.refused.clear();
            (self.failures, self.blocked_until) = (0, UnixNanos(i64::MIN));
            for task in std::mem::take(&mut self.tasks) {
                self.history.add(task.info(), now);
            }
        }
        self.settings = settings;
    }

    /// These pods wait for the rule now.
    pub(super) fn ask(&mut self, subjects: Vec<Subject>, now: UnixNanos) {
        let present: BTreeSet<AskingKey> = subjects.iter().map(|subject| subject.key).collect();
        self.passed.retain(|key, _| present.contains(key));
        self.refused.retain(|key, _| present.contains(key));
        let waits = |task: &Task| task.processing.iter().any(|waiter| present.contains(&waiter.key));
        let (wanted, unwanted) = std::mem::take(&mut self.tasks).into_iter().partition(waits);
        self.tasks = wanted;
        for task in unwanted {
            self.history.add(Task::info(&task), now);
        }
        self.subjects = subjects;
    }

    /// What is to be done now. Calls are to be made, and [`posted`](Self::posted) or [`polled`](Self::polled) told of each.
    pub(super) fn next(&mut self, now: UnixNanos) -> Next {
        let mut next = Next { is_news: self.give_up_late_tasks(now), ..Next::default() };
        self.poll(now, &mut next);
        self.post(now, &mut next);
        next
    }

    fn give_up_late_tasks(&mut self, now: UnixNanos) -> bool {
        let Some(times) = self.settings.poll else { return false };
        let (late, rest): (Vec<_>, _) =
            std::mem::take(&mut self.tasks).into_iter().partition(|task| task.is_late(times, now));
        self.tasks = rest;
        let is_news = !late.is_empty();
        for mut task in late {
            task.message = format!("Polling Timeout. {}", task.message);
            match task.error.clone().filter(|_| self.settings.ignores_failures) {
                Some(error) => {
                    let failure = format!("{}: {error}", task.message);
                    self.pass_all(&mut task, failure);
                }
                None => self.refuse(&task, false),
            }
            self.end(task, now);
        }
        is_news
    }

    fn poll(&mut self, now: UnixNanos, next: &mut Next) {
        let Some(times) = self.settings.poll else { return };
        let mut room = MOST_POLLS.saturating_sub(self.tasks.iter().filter(|task| task.in_flight).count());
        for task in self.tasks.iter_mut().filter(|task| !task.in_flight) {
            // A clock that was set back must not stop it.
            task.next_poll = task.next_poll.min(UnixNanos(now.0.saturating_add(times.interval)));
            if task.next_poll > now {
                let until =
                    if task.is_asked { task.next_poll.min(task.deadline(times)) } else { task.next_poll };
                next.wake(until);
            } else if room > 0 {
                room -= 1;
                (task.in_flight, task.is_asked) = (true, true);
                next.calls.push(Call::Poll { number: task.number, task: task.id.clone() });
            }
        }
    }

    fn post(&mut self, now: UnixNanos, next: &mut Next) {
        if self.batch.is_some() || self.tasks.len() >= MOST_TASKS {
            return;
        }
        let in_tasks: BTreeSet<AskingKey> =
            self.tasks.iter().flat_map(|task| &task.processing).map(|waiter| waiter.key).collect();
        let is_free = |key: &AskingKey| !self.passed.contains_key(key) && !in_tasks.contains(key);
        let free: Vec<&Subject> = self.subjects.iter().filter(|subject| is_free(&subject.key)).collect();
        if free.is_empty() {
            return;
        }
        let is_new = free.iter().any(|subject| !self.refused.contains_key(&subject.key));
        let from = if is_new { self.blocked_until } else { self.blocked_until.max(self.retry_at) };
        let from = from.min(UnixNanos(now.0.saturating_add(2 * LAST_RETRY)));
        if from > now {
            next.wake(from);
            return;
        }
        let waiters = free.iter().map(|subject| Waiter::from(*subject)).collect();
        let mut names = BTreeSet::new();
        let pods = free.into_iter().filter(|subject| names.insert(&subject.pod)).cloned().collect();
        self.last_number += 1;
        self.batch = Some((self.last_number, waiters));
        next.calls.push(Call::Post { number: self.last_number, pods });
    }

    /// What is said to these pods, in step with them.
    pub(super) fn verdicts(&self, subjects: &[Subject]) -> Vec<Verdict> {
        let mut tasks: BTreeMap<AskingKey, &Task> = BTreeMap::new();
        for task in &self.tasks {
            for waiter in &task.processing {
                tasks.entry(waiter.key).or_insert(task);
            }
        }
        subjects
            .iter()
            .map(|subject| self.verdict_in(subject.key, tasks.get(&subject.key).copied()))
            .collect()
    }

    /// What is said to one pod.
    #[cfg(test)]
    pub(super) fn verdict(&self, subject: &Subject) -> Verdict {
        self.verdicts(std::slice::from_ref(subject)).remove(0)
    }

    /// What is said to a pod that is in `task`.
    fn verdict_in(&self, key: AskingKey, task: Option<&Task>) -> Verdict {
        match self.passed.get(&key) {
            Some(None) => return Verdict::Passed,
            Some(Some(failure)) => return Verdict::Ignored(failure.clone()),
            None => {}
        }
        let name = &self.name;
        Verdict::Waiting(match (task, self.refused.get(&key)) {
            (Some(Task { id, message, error: None, .. }), _) => {
                format!("Not approved by webhook {name}, polling task {id} is running {message}")
            }
            (Some(Task { id, message, error: Some(error), .. }), _) => {
                format!(
                    "Not approved by webhook {name}, polling task {id} is running {message}, polling task {id} error, {error}"
                )
            }
            (None, Some(Refused { reason, is_no: true })) => return Verdict::Rejected(reason.clone()),
            (None, Some(Refused { reason, .. })) => reason.clone(),
            (None, None) => format!("Not approved by webhook {name} yet: it is being asked"),
        })
    }

    /// What goes on record.
    pub(super) fn status(&mut self, now: UnixNanos) -> WebhookStatus {
        let task_states: Vec<TaskInfo> = self.tasks.iter().map(Task::info).collect();
        WebhookStatus { task_states, history: self.history.list(now) }
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn pass(&mut self, waiters: &[Waiter], failure: Option<&str>) {
        for waiter in waiters {
            self.refused.remove(&waiter.key);
            self.passed.insert(waiter.key, failure.map(str::to_owned));
        }
        // Of pods that don't wait any more nobody will ask.
        let present: BTreeSet<AskingKey> = self.subjects.iter().map(|subject| subject.key).collect();
        self.passed.retain(|key, _| present.contains(key));
    }

    fn pass_all(&mut self, task: &mut Task, failure: String) {
        let passed = std::mem::take(&mut task.processing);
        self.pass(&passed, Some(&failure));
        task.approved.extend(passed);
    }

    /// Those that a task which has ended has not approved. They are sent anew at once. `is_no`: the webhook has ended it.
    fn refuse(&mut self, task: &Task, is_no: bool) {
        let error = task
            .error
            .as_ref()
            .map(|error| format!(" polling task {} error, {error}", task.id))
            .unwrap_or_default();
        let reason = format!(
            "Not approved by webhook {}, polling task {} stopped {}{error}",
            self.name, task.id, task.message
        );
        let refused = Refused { reason, is_no };
        self.refused.extend(task.processing.iter().map(|waiter| (waiter.key, refused.clone())));
        if !task.processing.is_empty() {
            self.retry_at = UnixNanos(i64::MIN);
        }
    }

    fn end(&mut self, mut task: Task, now: UnixNanos) {
        task.recorded = Some(now);
        self.history.add(task.info(), now);
    }
}

impl Next {
    fn wake(&mut self, at: UnixNanos) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }
}
