//! The parameters of an election.

use std::time::Duration;

/// Annotation of the Lease: the address of its holder's gRPC port.
pub const GRPC_ADDRESS: &str = "podward.io/grpc-address";

/// The Lease, the candidate, and the duration of a term.
#[derive(Clone, Debug)]
pub struct LeaseParams {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of the candidate. It differs from process to process, so a restarted process is another candidate.
    pub identity: String,
    /// With what the names of earlier processes of this container begin, `None` if that is not known. A container has
    /// one process at a time, so a holder with such a name has ended.
    pub predecessors: Option<String>,
    /// How long the Lease is valid after a renewal. Other candidates wait this long when the holder was killed. In the
    /// Lease it is rounded up to whole seconds. The leader renews after each third of it.
    pub duration: Duration,
    /// The address at which other replicas reach this one while it holds the Lease (`host:port`). It is published in
    /// the annotation [`GRPC_ADDRESS`]; `None` publishes none.
    pub address: Option<String>,
}

impl LeaseParams {
    pub(super) fn renew_every(&self) -> Duration {
        self.duration / 3
    }

    /// A leader that has not renewed the Lease for this long steps down.
    pub(super) fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// True if `holder` is an earlier process of this container.
    pub(crate) fn is_predecessor(&self, holder: &str) -> bool {
        self.predecessors.as_ref().is_some_and(|start| holder.starts_with(start))
    }

    /// Returns `spec.leaseDurationSeconds`.
    pub(super) fn duration_seconds(&self) -> i32 {
        i32::try_from(self.duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX).max(1)
    }
}
