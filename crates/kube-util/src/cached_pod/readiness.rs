//! When `Ready` can be relied on.

use jiff::{SignedDuration, Timestamp};

use super::CachedPod;
use super::conditions::Conditions;

/// How far two whole seconds may be apart that name times of the same second.
const FIRST_SECOND: SignedDuration = SignedDuration::from_secs(1);
/// Longer than a kubelet needs to react to a change of a readiness gate (0.7 s was measured on a busy node). Conditions
/// have a resolution of one second, so one of the two seconds may be lost.
const DOUBT: SignedDuration = SignedDuration::from_secs(2);

impl CachedPod {
    /// Returns true if it is certain that the pod was never Ready.
    ///
    /// The kubelet sets Ready to False in the write that sets the start time of the pod, and the time of the condition
    /// changes when its status does. Times have whole seconds, so a pod that became Ready and not Ready in its first
    /// second looks the same. A pod is Ready only while its gate is True: if the gate was not written in the first second,
    /// there was no such moment.
    #[must_use]
    pub fn was_never_ready(&self) -> bool {
        let Conditions { ready, ready_since, gate_since, .. } = self.status.conditions;
        match (ready_since, &self.status.start_time) {
            (Some(since), Some(start)) => {
                let is_first = since <= start.0;
                let is_late = |gate: Timestamp| gate.duration_since(start.0) > FIRST_SECOND;
                !ready && is_first && self.spec.readiness_gates && gate_since.is_none_or(is_late)
            }
            // No kubelet has begun to run it.
            (None, None) => !ready,
            _ => false,
        }
    }

    /// Returns for how long `Ready` must not be relied on yet, or `None` if it can be relied on.
    ///
    /// `Ready` is in doubt if it was set before the last change of the gate. After a very short operation the kubelet
    /// may still report that the pod was not Ready. After 2 s without a report, the kubelet has missed the change or
    /// its clock is behind.
    ///
    /// A change of the gate that is further in the future is from a leader whose clock was ahead. It says nothing about
    /// `Ready`, and must not keep the pod out of service until that time.
    #[must_use]
    pub fn ready_is_in_doubt_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let Conditions { gate_since, ready_since, ready, .. } = self.status.conditions;
        let (gate_since, ready_since) = (gate_since?, ready_since?);
        let passed = now.duration_since(gate_since);
        let left = DOUBT - passed;
        let is_recent = left.is_positive() && passed >= -DOUBT;
        (ready && ready_since < gate_since && is_recent).then_some(left)
    }
}
