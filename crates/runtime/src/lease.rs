//! Leader election by a `Lease` (coordination.k8s.io/v1).
//!
//! This is own code because the existing crates for this version of kube poll: a standby that reads the Lease every few
//! seconds learns late that the leader has released it. Here a standby watches the Lease and acquires it as soon as it
//! is free.
//!
//! # Guarantees
//!
//! - Every write carries the resource version that it was decided on, so at most one of two replicas succeeds.
//! - A Lease expires when it was not renewed for its duration. Each standby measures that with its own clock, from the
//!   moment when it saw the last change. The clocks of other machines never count (as in client-go).
//! - A leader whose work does not end steps down, see [`Progress`](crate::progress::Progress).
//! - A leader whose renewals fail steps down after two thirds of the duration, counted from when it *began* its last
//!   successful write. That is before any other replica may acquire the Lease.
//! - The Lease of a process that has ended is free for the next process of the same container: a container has one
//!   process at a time.
//!
//! # Caveat
//!
//! A process that is stopped and continued (SIGSTOP, a stalled machine) believes for a moment that it still leads, and
//! a request that it has already sent can't be cancelled. Every write of a leader needs preconditions of its own.

mod args;
mod candidate;
mod decide;
mod params;

use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::progress::Progress;
use candidate::Candidate;

pub use args::LeaseArgs;
pub use params::{GRPC_ADDRESS, LeaseParams};

/// A running candidacy. Dropping it also releases the Lease, but without waiting for that.
#[derive(Debug)]
pub struct Candidacy {
    /// True while this replica leads. The channel closes when the candidacy ends.
    pub leading: watch::Receiver<bool>,
    /// The address of the Lease's holder, be it this replica or another one; `None` while there is no holder, or the
    /// holder publishes no address. The address of a holder that has died stays until another replica takes its place.
    pub holder_address: watch::Receiver<Option<String>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Candidacy {
    /// Ends the candidacy, and releases the Lease if this replica holds it.
    ///
    /// Call this after the work that needs the Lease has ended: until then the Lease is renewed, and afterwards another
    /// replica starts at once.
    pub async fn release(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!("the task of leader election failed: {error}");
        }
    }
}

/// Takes part in the election until [`Candidacy::release`]. Errors of the API server are logged, and the request is
/// tried again. While `progress` is stalled, this replica does not lead.
#[must_use = "a candidacy that is dropped ends"]
pub fn stand(client: Client, params: LeaseParams, progress: Progress) -> Candidacy {
    let (leads, leading) = watch::channel(false);
    let (address, holder_address) = watch::channel(None);
    let stop = CancellationToken::new();
    let leases = Api::namespaced(client, &params.namespace);
    let task = tokio::spawn(Candidate::new(leases, params, leads, address, progress).run(stop.clone()));
    Candidacy { leading, holder_address, stop: stop.drop_guard(), task }
}

/// Runs `work` whenever `may` is true, until `stop`. The token of the work is cancelled when `may` turns false, its sender is
/// gone, or `stop` is cancelled. When this returns, nothing of the work is left running. Work that goes on for too long
/// after its token was cancelled counts as stalled `progress`.
pub async fn work_while(
    mut may: watch::Receiver<bool>,
    progress: &Progress,
    stop: &CancellationToken,
    work: impl AsyncFn(CancellationToken),
) {
    loop {
        tokio::select! {
            // First: whoever is told to stop no more cares whether it may work.
            biased;
            () = stop.cancelled() => return,
            may = may.wait_for(|may| *may) => if may.is_err() { return },
        }
        let token = stop.child_token();
        let (lost, mut still) = (token.clone(), may.clone());
        let progress = progress.clone();
        let watchdog = tokio::spawn(async move {
            still.wait_for(|may| !*may).await.map(|_| ()).unwrap_or_default();
            lost.cancel();
            // The end of the work is work, too: it must not last.
            let _ending = progress.begin();
            std::future::pending::<()>().await;
        });
        work(token).await;
        watchdog.abort();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_ends_with_the_right_to_it_and_begins_again() {
        let (sender, may) = watch::channel(false);
        let (stop, (begun, mut begins)) = (CancellationToken::new(), mpsc::unbounded_channel());
        let work = async |token: CancellationToken| {
            begun.send(token.clone()).unwrap();
            token.cancelled().await;
        };
        let events = async {
            for _ in 0..2 {
                sender.send_replace(true);
                let token = begins.recv().await.unwrap();
                assert!(!token.is_cancelled());
                sender.send_replace(false);
                token.cancelled().await;
            }
            sender.send_replace(true);
            let token = begins.recv().await.unwrap();
            stop.cancel();
            token.cancelled().await;
        };
        let progress = Progress::default();
        tokio::join!(work_while(may, &progress, &stop, work), events);
    }
}
