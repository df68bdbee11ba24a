//! The readiness gate, and what it decides.

use crate::keys::Stage;
use crate::operations::{Operation, Operations};
use crate::view::{ConditionStatus, PodView};

/// Whether the pod is out of service, so that it may be changed: the gate is off and no consumer holds the pod.
///
/// A gate whose condition nobody has written yet is not off by proof; a pod that was made without the gate (before Podward was
/// installed, or opted in later) has nothing but its consumers to wait for.
#[must_use]
pub fn may_operate(pod: &PodView<'_>) -> bool {
    gate_is_off(pod) && pod.protection_finalizers().next().is_none()
}

/// Whether the gate keeps nothing in service any more.
pub(crate) fn gate_is_off(pod: &PodView<'_>) -> bool {
    match pod.gate {
        Some(status) => status == ConditionStatus::False,
        None => !pod.has_gate,
    }
}

/// What the gate's condition has to be, or `None` where it stays as it is.
///
/// Off while an operation prepares or has its permission, whatever else goes on; as it is while a result waits to be judged. A pod
/// that is told to stay offline is put into service only to complete an operation: its consumers can't come back otherwise.
#[must_use]
pub fn desired_gate(pod: &PodView<'_>, operations: &Operations<'_>) -> Option<bool> {
    let any = |test: fn(&Operation<'_>) -> bool| operations.iter().any(|(_, operation)| test(operation));
    if any(|operation| operation.has_any(&[Stage::Preparing, Stage::Operate])) {
        return Some(false);
    }
    let is_out = any(|operation| operation.has(Stage::Operated) && !operation.has(Stage::Completing));
    let stays_offline = pod.stays_offline() && !any(|operation| operation.has(Stage::Completing));
    (!is_out && !stays_offline).then_some(true)
}

/// Whether the gate's condition has to be written, and as what: it must differ from what it is, and the pod must have one.
/// Like the labels, the gate of a pod that is being deleted, or hasn't opted in, is left alone.
#[must_use]
pub fn gate_to_write(pod: &PodView<'_>, operations: &Operations<'_>) -> Option<ConditionStatus> {
    if !pod.is_controlled() || pod.terminating || (!pod.has_gate && pod.gate.is_none()) {
        return None;
    }
    let wanted = if desired_gate(pod, operations)? { ConditionStatus::True } else { ConditionStatus::False };
    (pod.gate != Some(wanted)).then_some(wanted)
}

/// Whether the pod is in service: no operation, not told to stay offline, gate on, Ready, and every expected consumer holds it.
#[must_use]
pub fn available(pod: &PodView<'_>, operations: &Operations<'_>) -> bool {
    let gate_is_on = !pod.has_gate || pod.gate == Some(ConditionStatus::True);
    !operations.any_live()
        && !pod.stays_offline()
        && gate_is_on
        && pod.ready
        && !pod.terminating
        && pod.has_expected_finalizers()
}
