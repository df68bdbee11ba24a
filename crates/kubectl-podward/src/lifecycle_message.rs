//! What a pod waits for, in a sentence.

use podward_core::{ConditionStatus, NoRules, Operations, Pod, explain};

/// What is to be said of a pod.
#[derive(Debug)]
pub(crate) struct Lifecycle<'p> {
    pub(crate) status: ConditionStatus,
    /// One word in CamelCase.
    pub(crate) reason: &'p str,
    /// What the pod waits for.
    pub(crate) message: String,
}

impl<'p> Lifecycle<'p> {
    /// Returns what is to be said of `pod`. The condition says more than the labels, but it is written only after a wait of some
    /// seconds, or with the next write. Until then it may be about an earlier state. A pod in service may have none.
    pub(crate) fn of(pod: &'p Pod, operations: &Operations<'_>) -> Self {
        let present = explain(&pod.view(), &NoRules, &[]);
        let stored = pod.lifecycle_message().zip(pod.lifecycle_state()).filter(|(message, state)| {
            let names_all = operations
                .iter()
                .filter(|(_, operation)| operation.is_live())
                .all(|(id, _)| message.contains(&format!("operation {id} ")) || pod.view().terminating);
            // Only the controller knows whether a pod without an operation is in service.
            names_all
                && (*state == (present.status, present.reason)
                    || (present.status == ConditionStatus::True && state.0 == ConditionStatus::False))
        });
        match stored {
            Some((message, (status, reason))) => Self { status, reason, message: message.to_owned() },
            None => Self { status: present.status, reason: present.reason, message: present.message },
        }
    }
}

/// Returns what the pod waits for.
pub(crate) fn lifecycle_message(pod: &Pod, operations: &Operations<'_>) -> String {
    Lifecycle::of(pod, operations).message
}
