//! A task: a request that the webhook answers over time, and that is polled meanwhile.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use podward_api::pod_transition_rule::TaskInfo;
use podward_core::UnixNanos;

use super::settings::TaskPolling;
use super::waiting_pod::{CheckKey, WaitingPod};

/// The time of the last poll is stored this often, in nanoseconds, while the polls bring nothing new. Each is a write.
const STORE_INTERVAL: i64 = 60_000_000_000;

/// A task that runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WebhookTask {
    /// Identifies the task in this process. Webhooks may use an id twice.
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) processing: Vec<TaskPod>,
    pub(super) approved: Vec<TaskPod>,
    pub(super) began: UnixNanos,
    /// The time of the last poll that is stored.
    pub(super) stored_poll: Option<UnixNanos>,
    pub(super) message: String,
    pub(super) error: Option<String>,
    pub(super) next_poll: UnixNanos,
    pub(super) in_flight: bool,
    /// True once this process has polled it. A task that survived a restart is polled before it times out.
    pub(super) is_polled: bool,
}

/// A pod of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskPod {
    pub(super) name: String,
    pub(super) key: CheckKey,
}

impl From<&WaitingPod> for TaskPod {
    fn from(pod: &WaitingPod) -> Self {
        Self { name: pod.name.clone(), key: pod.key }
    }
}

impl WebhookTask {
    /// Continues a task from the stored status. Returns `None` if the status does not say which check requests its pods
    /// belong to: another controller wrote it, or somebody changed it. Then the pods are sent again.
    pub(super) fn resume(number: u64, info: &TaskInfo, polling: TaskPolling, now: UnixNanos) -> Option<Self> {
        let keys: Option<Vec<_>> = info.requests.iter().map(|text| CheckKey::parse(text)).collect();
        let keys = keys.filter(|keys| keys.len() == info.processing.len() + info.approved.len())?;
        let names = info.processing.iter().chain(&info.approved);
        let mut pods = names.zip(keys).map(|(name, key)| TaskPod { name: name.clone(), key });
        let processing: Vec<_> = pods.by_ref().take(info.processing.len()).collect();
        let approved = pods.collect();
        if info.task_id.is_empty() || processing.is_empty() {
            return None;
        }
        let began = info.begin_time.as_ref().map_or(now, nanos).min(now);
        let stored_poll = info.last_time.as_ref().map(nanos);
        let last = stored_poll.unwrap_or(began).min(now);
        Some(Self {
            number,
            id: info.task_id.clone(),
            processing,
            approved,
            began,
            stored_poll,
            message: info.message.clone(),
            error: None,
            next_poll: UnixNanos(last.0.saturating_add(polling.interval)).max(now),
            in_flight: false,
            is_polled: false,
        })
    }

    /// Returns the time at which the task times out.
    pub(super) fn deadline(&self, polling: TaskPolling) -> UnixNanos {
        UnixNanos(self.began.0.saturating_add(polling.timeout))
    }

    /// True if the task has timed out at `now`.
    pub(super) fn is_late(&self, polling: TaskPolling, now: UnixNanos) -> bool {
        self.is_polled && !self.in_flight && now >= self.deadline(polling)
    }

    /// Notes a poll at `now`. `is_news`: it brought a new message or approvals.
    pub(super) fn note_poll(&mut self, now: UnixNanos, is_news: bool) {
        let before = self.stored_poll.unwrap_or(self.began);
        if is_news || now.0.saturating_sub(before.0) >= STORE_INTERVAL {
            self.stored_poll = Some(now);
        }
    }

    /// Returns the task as the status of the rule contains it.
    pub(super) fn info(&self) -> TaskInfo {
        let names = |pods: &[TaskPod]| pods.iter().map(|pod| pod.name.clone()).collect();
        TaskInfo {
            task_id: self.id.clone(),
            processing: names(&self.processing),
            approved: names(&self.approved),
            begin_time: Some(time(self.began)),
            last_time: self.stored_poll.map(time),
            message: self.message.clone(),
            requests: self.processing.iter().chain(&self.approved).map(|pod| pod.key.text()).collect(),
        }
    }
}

/// Converts to whole seconds, the precision of the API.
pub(super) fn time(at: UnixNanos) -> Time {
    Time(Timestamp::from_second(at.0.div_euclid(1_000_000_000)).unwrap_or_default())
}

pub(super) fn nanos(time: &Time) -> UnixNanos {
    podward_kube_util::unix_nanos(time.0)
}
