//! The readiness gate.

use crate::model::keys::Stage;
use crate::model::operations::{Operation, Operations};
use crate::model::view::{ConditionStatus, PodView};

/// Returns whether the pod is out of service, so that it may be changed: the gate is off and no consumer uses the pod.
///
/// A gate without a condition does not count as off. A pod without the gate (it was created before Podward was
/// installed, or opted in later) only waits for its consumers.
#[must_use]
pub fn may_operate(pod: &PodView<'_>) -> bool {
    gate_is_off(pod) && pod.protection_finalizers().next().is_none()
}

/// Returns whether the gate is off, or the pod has no gate.
pub(crate) fn gate_is_off(pod: &PodView<'_>) -> bool {
    match pod.gate {
        Some(status) => status == ConditionStatus::False,
        None => !pod.has_gate,
    }
}

/// Returns the wanted status of the gate's condition, or `None` when it stays as it is.
///
/// The gate is off while an operation prepares or has its permission. It stays as it is while a result is being
/// checked, and while the pod is to stay offline.
#[must_use]
pub fn desired_gate(pod: &PodView<'_>, operations: &Operations<'_>) -> Option<bool> {
    let any = |test: fn(&Operation<'_>) -> bool| operations.iter().any(|(_, operation)| test(operation));
    if any(|operation| operation.has_any(&[Stage::Preparing, Stage::Operate])) {
        return Some(false);
    }
    let is_out = any(|operation| operation.has(Stage::Operated) && !operation.has(Stage::Completing));
    (!is_out && !pod.stays_offline()).then_some(true)
}

/// Returns the status to write to the gate's condition, or `None` when there is nothing to write. The gate of a pod
/// that is being deleted, or has not opted in, does not change.
#[must_use]
pub fn gate_to_write(pod: &PodView<'_>, operations: &Operations<'_>) -> Option<ConditionStatus> {
    if !pod.is_controlled() || pod.terminating || (!pod.has_gate && pod.gate.is_none()) {
        return None;
    }
    let wanted = if desired_gate(pod, operations)? { ConditionStatus::True } else { ConditionStatus::False };
    (pod.gate != Some(wanted)).then_some(wanted)
}

/// Returns whether the pod is in service: no operation has started, not to stay offline, gate on, Ready, and every
/// expected consumer uses it. A pod for which an operation is only announced is in service: budgets count it.
#[must_use]
pub fn available(pod: &PodView<'_>, operations: &Operations<'_>) -> bool {
    let gate_is_on = !pod.has_gate || pod.gate == Some(ConditionStatus::True);
    !operations.iter().any(|(_, operation)| operation.has_started())
        && !pod.stays_offline()
        && gate_is_on
        && pod.ready
        && !pod.terminating
        && pod.has_expected_finalizers()
}

/// Returns whether the kubelet has set Ready since the last change of the gate. Before, Ready may be that of the time
/// before an operation.
pub(crate) fn ready_follows_gate(pod: &PodView<'_>) -> bool {
    let times = (pod.facts.ready_since, pod.facts.gate_since);
    !pod.has_gate || matches!(times, (Some(ready), Some(gate)) if ready >= gate)
}
