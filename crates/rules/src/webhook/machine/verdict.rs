//! The verdicts of a webhook on pods.

use std::collections::BTreeMap;

use super::reason::{WebhookFingerprint, WebhookReason};
use super::state::{PodRefusal, WebhookMachine};
use super::task::WebhookTask;
use super::waiting_pod::{CheckKey, WaitingPod};

/// The verdict of a webhook on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebhookVerdict {
    /// The pod passes.
    Passed,
    /// The pod passes because the webhook failed, with this error, and failures are ignored.
    Ignored(String),
    /// The webhook refused the pod.
    Rejected(WebhookReason),
    /// There is no answer to rely on: a task runs, or the webhook can't be called.
    Waiting(WebhookReason),
    /// The webhook has not been called about the pod, or has not answered. It may have answered another controller.
    NotAnswered,
}

impl WebhookMachine {
    /// Returns the verdicts on `pods`, in the same order.
    pub(crate) fn verdicts(&self, pods: &[WaitingPod]) -> Vec<WebhookVerdict> {
        let mut tasks: BTreeMap<CheckKey, &WebhookTask> = BTreeMap::new();
        for task in &self.tasks {
            for pod in &task.processing {
                tasks.entry(pod.key).or_insert(task);
            }
        }
        pods.iter().map(|pod| self.verdict_in(pod.key, tasks.get(&pod.key).copied())).collect()
    }

    /// Returns the verdict on one pod.
    #[cfg(test)]
    pub(crate) fn verdict(&self, pod: &WaitingPod) -> WebhookVerdict {
        self.verdicts(std::slice::from_ref(pod)).remove(0)
    }

    /// Returns the verdict on a pod that is in `task`.
    fn verdict_in(&self, key: CheckKey, task: Option<&WebhookTask>) -> WebhookVerdict {
        match self.passed.get(&key) {
            Some(None) => return WebhookVerdict::Passed,
            Some(Some(failure)) => return WebhookVerdict::Ignored(failure.clone()),
            None => {}
        }
        let name = &self.name;
        match (task, self.refused.get(&key)) {
            (Some(WebhookTask { id, message, error, .. }), _) => {
                let mut text =
                    format!("Not approved by webhook {name}, polling task {id} is running {message}");
                if let Some(error) = error {
                    text.push_str(&format!(", polling task {id} error, {error}"));
                }
                let (message, error) = (message.clone(), error.clone());
                let fingerprint = WebhookFingerprint::TaskRunning { message, error };
                WebhookVerdict::Waiting(WebhookReason { text, fingerprint })
            }
            (None, Some(PodRefusal { reason, is_rejected: true, .. })) => {
                WebhookVerdict::Rejected(reason.clone())
            }
            (None, Some(PodRefusal { reason, .. })) => WebhookVerdict::Waiting(reason.clone()),
            (None, None) => WebhookVerdict::NotAnswered,
        }
    }
}
