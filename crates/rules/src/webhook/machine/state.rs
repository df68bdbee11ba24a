//! The state of one rule's webhook.

use std::collections::{BTreeMap, BTreeSet};

use podward_api::pod_transition_rule::{TaskInfo, WebhookStatus};
use podward_core::UnixNanos;

use super::reason::{WebhookFingerprint, WebhookReason};
use super::settings::WebhookSettings;
use super::task::{TaskPod, WebhookTask};
use super::task_history::TaskHistory;
use super::waiting_pod::{CheckKey, WaitingPod};

/// Tasks that run at the same time. While there are as many, no batch is sent.
pub(super) const MAX_TASKS: usize = 64;

/// Why a pod that is in no task has not passed.
#[derive(Clone, Debug)]
pub(super) struct PodRefusal {
    pub(super) reason: WebhookReason,
    /// True if the webhook refused; false if it failed, its task timed out, or the pod is too large to be sent.
    pub(super) is_rejected: bool,
    /// The number of the batch or the task. Later ones have larger numbers.
    pub(super) number: u64,
}

/// The state of one rule's webhook.
#[derive(Debug)]
pub(crate) struct WebhookMachine {
    /// `namespace/object/rule`, for messages.
    pub(super) name: String,
    pub(super) settings: WebhookSettings,
    pub(super) pods: Vec<WaitingPod>,
    pub(super) tasks: Vec<WebhookTask>,
    pub(super) history: TaskHistory,
    /// The pods that passed; with the error for those that passed because failures are ignored.
    pub(super) passed: BTreeMap<CheckKey, Option<String>>,
    pub(super) refused: BTreeMap<CheckKey, PodRefusal>,
    /// The number and the pods of the batch in flight.
    pub(super) batch: Option<(u64, Vec<TaskPod>)>,
    /// Batches in a row of which each pod was too large, so that nothing was sent.
    pub(super) unsent: u32,
    /// Batches that failed in a row.
    pub(super) failures: u32,
    /// No batch is sent before this time.
    pub(super) blocked_until: UnixNanos,
    /// Pods that were refused are sent again at this time.
    pub(super) retry_at: UnixNanos,
    last_number: u64,
}

impl WebhookMachine {
    /// Continues from the stored status.
    pub(crate) fn new(
        name: String,
        settings: WebhookSettings,
        stored: Option<&WebhookStatus>,
        now: UnixNanos,
    ) -> Self {
        let mut machine = Self {
            name,
            settings,
            pods: Vec::new(),
            tasks: Vec::new(),
            history: TaskHistory::default(),
            passed: BTreeMap::new(),
            refused: BTreeMap::new(),
            batch: None,
            unsent: 0,
            failures: 0,
            blocked_until: UnixNanos(i64::MIN),
            retry_at: UnixNanos(i64::MIN),
            last_number: 0,
        };
        let stored = stored.cloned().unwrap_or_default();
        machine.history.resume(stored.history, now);
        for info in stored.task_states {
            let number = machine.next_number();
            let polling = machine.settings.polling.filter(|_| machine.tasks.len() < MAX_TASKS);
            match polling.and_then(|polling| WebhookTask::resume(number, &info, polling, now)) {
                Some(task) => {
                    let passed = task.approved.iter().map(|pod| (pod.key, None));
                    machine.passed.extend(passed);
                    machine.tasks.push(task);
                }
                None => machine.history.add(info, now),
            }
        }
        machine
    }

    /// Sets the settings of the rule.
    pub(crate) fn configure(&mut self, settings: WebhookSettings, now: UnixNanos) {
        if self.settings.address != settings.address {
            self.batch = None;
            self.passed.clear();
            self.refused.clear();
            (self.failures, self.blocked_until) = (0, UnixNanos(i64::MIN));
            for task in std::mem::take(&mut self.tasks) {
                self.history.add(task.info(), now);
            }
        }
        if !settings.ignores_failures {
            self.passed.retain(|_, failure| failure.is_none());
        }
        self.settings = settings;
    }

    /// Sends pods that were too large again at once: the rule may name smaller parameters now.
    pub(crate) fn retry_too_large(&mut self) {
        if std::mem::take(&mut self.unsent) > 0 {
            self.retry_at = UnixNanos(i64::MIN);
        }
    }

    /// Sets the pods that wait for the rule.
    pub(crate) fn set_waiting(&mut self, pods: Vec<WaitingPod>, now: UnixNanos) {
        let present: BTreeSet<CheckKey> = pods.iter().map(|pod| pod.key).collect();
        self.passed.retain(|key, _| present.contains(key));
        self.refused.retain(|key, _| present.contains(key));
        let is_wanted = |task: &WebhookTask| task.processing.iter().any(|pod| present.contains(&pod.key));
        let (wanted, unwanted) = std::mem::take(&mut self.tasks).into_iter().partition(is_wanted);
        self.tasks = wanted;
        for task in unwanted {
            self.history.add(WebhookTask::info(&task), now);
        }
        self.pods = pods;
    }

    /// Returns the status to store.
    pub(crate) fn status(&mut self, now: UnixNanos) -> WebhookStatus {
        let task_states: Vec<TaskInfo> = self.tasks.iter().map(WebhookTask::info).collect();
        WebhookStatus { task_states, history: self.history.list(now) }
    }

    /// Returns a number for a batch or a task.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Lets `pods` pass; with `failure` because failures are ignored.
    pub(super) fn pass(&mut self, pods: &[TaskPod], failure: Option<&str>) {
        for pod in pods {
            self.refused.remove(&pod.key);
            self.passed.insert(pod.key, failure.map(str::to_owned));
        }
        // Pods that do not wait any more are not looked up again.
        let present: BTreeSet<CheckKey> = self.pods.iter().map(|pod| pod.key).collect();
        self.passed.retain(|key, _| present.contains(key));
    }

    /// Lets all pods of `task` pass, because its failures are ignored.
    pub(super) fn pass_all(&mut self, task: &mut WebhookTask, failure: &str) {
        let passed = std::mem::take(&mut task.processing);
        self.pass(&passed, Some(failure));
        task.approved.extend(passed);
    }

    /// Refuses the pods that a task has not approved at its end, and sends them again at once. `is_rejected`: the
    /// webhook ended the task.
    pub(super) fn refuse(&mut self, task: &WebhookTask, is_rejected: bool) {
        let error = task
            .error
            .as_ref()
            .map(|error| format!(" polling task {} error, {error}", task.id))
            .unwrap_or_default();
        let text = format!(
            "Not approved by webhook {}, polling task {} stopped {}{error}",
            self.name, task.id, task.message
        );
        let (message, error) = (task.message.clone(), task.error.clone());
        let reason = WebhookReason { text, fingerprint: WebhookFingerprint::TaskStopped { message, error } };
        let refusal = PodRefusal { reason, is_rejected, number: task.number };
        self.refused.extend(task.processing.iter().map(|pod| (pod.key, refusal.clone())));
        if !task.processing.is_empty() {
            self.retry_at = UnixNanos(i64::MIN);
        }
    }

    /// Moves a task to the history.
    pub(super) fn end(&mut self, mut task: WebhookTask, now: UnixNanos) {
        task.stored_poll = Some(now);
        self.history.add(task.info(), now);
    }
}
