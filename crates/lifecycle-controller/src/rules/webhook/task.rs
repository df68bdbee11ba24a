//! Something that a webhook takes its time for.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use podward_api::pod_transition_rule::TaskInfo;
use podward_core::UnixNanos;

use super::asking::{AskingKey, Subject};
use super::machine::PollTimes;

/// While a task brings nothing new, the time at which it was last asked for is put on record this often. Each record is a write.
const RECORD: i64 = 60_000_000_000;

/// A task that goes on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) processing: Vec<Waiter>,
    pub(super) approved: Vec<Waiter>,
    pub(super) began: UnixNanos,
    pub(super) recorded: Option<UnixNanos>,
    pub(super) message: String,
    pub(super) error: Option<String>,
    pub(super) next_poll: UnixNanos,
    pub(super) in_flight: bool,
    /// Whether it was asked for since it is known here. One that outlived a restart is asked for before it is given up.
    pub(super) is_asked: bool,
}

/// A pod of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) pod: String,
    pub(super) key: AskingKey,
}

impl From<&Subject> for Waiter {
    fn from(subject: &Subject) -> Self {
        Self { pod: subject.pod.clone(), key: subject.key }
    }
}

impl Task {
    /// A task that goes on from what is on record. `None` when it can't be told for which operations its pods were asked: another
    /// controller's, or one that was tampered with; then they are asked anew.
    pub(super) fn resume(number: u64, info: &TaskInfo, times: PollTimes, now: UnixNanos) -> Option<Self> {
        let keys: Option<Vec<_>> = info.askings.iter().map(|text| AskingKey::parse(text)).collect();
        let keys = keys.filter(|keys| keys.len() == info.processing.len() + info.approved.len())?;
        let pods = info.processing.iter().chain(&info.approved);
        let mut waiters = pods.zip(keys).map(|(pod, key)| Waiter { pod: pod.clone(), key });
        let processing: Vec<_> = waiters.by_ref().take(info.processing.len()).collect();
        let approved = waiters.collect();
        if info.task_id.is_empty() || processing.is_empty() {
            return None;
        }
        let began = info.begin_time.as_ref().map_or(now, nanos).min(now);
        let recorded = info.last_time.as_ref().map(nanos);
        let last = recorded.unwrap_or(began).min(now);
        Some(Self {
            number,
            id: info.task_id.clone(),
            processing,
            approved,
            began,
            recorded,
            message: info.message.clone(),
            error: None,
            next_poll: UnixNanos(last.0.saturating_add(times.interval)).max(now),
            in_flight: false,
            is_asked: false,
        })
    }

    /// When it is given up.
    pub(super) fn deadline(&self, times: PollTimes) -> UnixNanos {
        UnixNanos(self.began.0.saturating_add(times.timeout))
    }

    /// Whether it is to be given up now.
    pub(super) fn is_late(&self, times: PollTimes, now: UnixNanos) -> bool {
        self.is_asked && !self.in_flight && now >= self.deadline(times)
    }

    /// Takes down that it was asked for, with a new message and approvals or not.
    pub(super) fn record(&mut self, now: UnixNanos, is_news: bool) {
        let before = self.recorded.unwrap_or(self.began);
        if is_news || now.0.saturating_sub(before.0) >= RECORD {
            self.recorded = Some(now);
        }
    }

    /// As it is put on record.
    pub(super) fn info(&self) -> TaskInfo {
        let names = |waiters: &[Waiter]| waiters.iter().map(|waiter| waiter.pod.clone()).collect();
        TaskInfo {
            task_id: self.id.clone(),
            processing: names(&self.processing),
            approved: names(&self.approved),
            begin_time: Some(time(self.began)),
            last_time: self.recorded.map(time),
            message: self.message.clone(),
            askings: self.processing.iter().chain(&self.approved).map(|waiter| waiter.key.text()).collect(),
        }
    }
}

/// In whole seconds, as the API has it.
pub(super) fn time(at: UnixNanos) -> Time {
    Time(Timestamp::from_second(at.0.div_euclid(1_000_000_000)).unwrap_or_default())
}

pub(super) fn nanos(time: &Time) -> UnixNanos {
    UnixNanos(i64::try_from(time.0.as_nanosecond()).unwrap_or(i64::MAX))
}
