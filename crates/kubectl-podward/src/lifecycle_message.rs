//! What a pod waits for, in a sentence.

use podward_core::{ConditionStatus, NoRules, Operations, Pod, explain};

/// Returns what the pod waits for. The condition says more than the labels, but it is written only after a wait of some
/// seconds, or with the next write. Until then it may be about an earlier state.
pub(crate) fn lifecycle_message(pod: &Pod, operations: &Operations<'_>) -> String {
    let present = explain(&pod.view(), &NoRules, &[]);
    let Some((stored, state)) = pod.lifecycle_message().zip(pod.lifecycle_state()) else {
        return present.message;
    };
    let names_all = operations
        .iter()
        .filter(|(_, operation)| operation.is_live())
        .all(|(id, _)| stored.contains(&format!("operation {id} ")) || pod.view().terminating);
    // Only the controller knows whether a pod without an operation is in service.
    let is_current = names_all
        && (state == (present.status, present.reason)
            || (present.status == ConditionStatus::True && state.0 == ConditionStatus::False));
    if is_current { stored.to_owned() } else { present.message }
}
