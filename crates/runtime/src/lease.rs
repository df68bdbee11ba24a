//! Leader election by a `Lease` (coordination.k8s.io/v1).
//!
//! Own code, because what there is for this version of kube polls: a standby that asks every few seconds learns late that the
//! leader has let go. Here a standby watches the lease, and takes it over in the moment that it becomes free.
//!
//! # Guarantees
//!
//! - Every write carries the resource version that it was decided on, so of two replicas one at most succeeds.
//! - A lease has run out when it was not renewed for its duration by the standby's own clock, counted from when the standby saw
//!   the last change. What the clocks of other machines say never counts (as in client-go).
//! - A leader whose renewals fail steps down after two thirds of the duration, counted from when it *began* its last successful
//!   write: before anybody else may take over.
//!
//! # Caveat
//!
//! A process that is stopped and continued (SIGSTOP, a stalled machine) believes for an instant that it still leads, and a request
//! on its way can't be called back. What a leader writes must carry preconditions of its own.

mod candidate;
mod decide;

use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use candidate::Candidate;

/// Annotation of the lease: where its holder's gRPC port is.
pub const GRPC_ADDRESS: &str = "podward.io/grpc-address";

/// Which lease, for whom, and how patient.
#[derive(Clone, Debug)]
pub struct LeaseParams {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who stands for election: another for each process, also for a restarted one.
    pub identity: String,
    /// How long the lease is good after a renewal, and so the longest that others wait when the holder was killed. On the wire it
    /// is whole seconds, rounded up. The leader renews each third of it.
    pub duration: Duration,
    /// Where others reach this replica while it holds the lease, as in `host:port`; published as the annotation [`GRPC_ADDRESS`].
    pub address: Option<String>,
}

impl LeaseParams {
    fn renew_every(&self) -> Duration {
        self.duration / 3
    }

    /// A leader that has not renewed for so long leads no more.
    fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }

    fn wire_seconds(&self) -> i32 {
        i32::try_from(self.duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX).max(1)
    }
}

/// A running candidacy. Dropping it lets go of the lease too, but nobody waits for that.
#[derive(Debug)]
pub struct Candidacy {
    /// Whether this replica leads. The channel closes when the candidacy ends.
    pub leading: watch::Receiver<bool>,
    /// Where the lease's holder is reached, be it this replica or another; `None` while nobody holds it, or the holder doesn't say.
    /// A holder that has died is known only by another taking its place.
    pub holder_address: watch::Receiver<Option<String>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Candidacy {
    /// Ends the candidacy, and lets go of the lease if it is held. Let the work that needs the lease end first: until this is
    /// called the lease goes on being renewed, and after it another replica starts at once.
    pub async fn release(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!("leader election ended badly: {error}");
        }
    }
}

/// Stands for election until [`Candidacy::release`]. Errors of the API server are logged, and tried again.
#[must_use = "a candidacy that is dropped ends"]
pub fn stand(client: Client, params: LeaseParams) -> Candidacy {
    let (leads, leading) = watch::channel(false);
    let (address, holder_address) = watch::channel(None);
    let stop = CancellationToken::new();
    let leases = Api::namespaced(client, &params.namespace);
    let task = tokio::spawn(Candidate::new(leases, params, leads, address).run(stop.clone()));
    Candidacy { leading, holder_address, stop: stop.drop_guard(), task }
}
