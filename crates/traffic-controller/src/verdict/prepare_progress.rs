//! What PREPARE remembers.

use podward_core::UnixNanos;

/// The progress of a question between two evaluations. It is lost when the process ends; then its waits start again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrepareProgress {
    /// True if a slice that follows the Ready condition has shown the pod as ready since the question was asked. If
    /// that ends, the kubelet has observed the readiness gate.
    pub(crate) saw_ready: bool,
    /// When it was first observed that a Service selects the pod but no slice lists it.
    pub(crate) unlisted_since: Option<UnixNanos>,
    /// When it was first observed that no slice shows the pod as ready.
    pub(crate) not_ready_since: Option<UnixNanos>,
    /// When it was first observed that all data paths have applied this.
    pub(crate) propagated_since: Option<UnixNanos>,
    /// Since when the pod has reported without interruption that no requests are in flight.
    pub(crate) idle_since: Option<UnixNanos>,
    /// The latest time at which data can have been received or sent, by the last read of the connections to the pod, or
    /// at which the pod was asked when it last reported requests in flight.
    pub(crate) last_data: Option<UnixNanos>,
}

impl PrepareProgress {
    /// Records that requests may still arrive: the wait for those in flight begins again.
    pub(crate) fn may_receive_requests(&mut self) {
        self.propagated_since = None;
        self.idle_since = None;
    }
}
