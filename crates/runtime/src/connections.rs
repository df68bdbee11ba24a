//! Limits on connections, which hold for clients without credentials.
//!
//! A client can open as many connections as it likes and say nothing, or say it slowly. The server therefore
//! distinguishes connections that are *proven* (see [`ConnectionProof`]) from all others. Unproven connections have a
//! part of the places, time out soon, and are replaced by new ones, the oldest first. So a new connection never waits for
//! a place, and clients that prove themselves at once keep theirs.

mod limits;
mod metrics;
mod open;
mod peer;
mod places;
mod table;
mod turns;

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use limits::ConnectionLimits;
pub(crate) use metrics::{ClosedBy, ConnectionMetrics, HandshakeOutcome};
pub use open::ConnectionProof;
pub(crate) use open::{IdleCheck, IdleLimits, OpenConnection, RequestOnConnection};
pub(crate) use peer::Peer;
pub(crate) use places::{PeerPlace, PeerPlaces};
use table::{Admission, ConnectionTable};
pub(crate) use turns::FairTurns;

/// The connections of one port. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    shared: Arc<SharedConnections>,
}

#[derive(Debug)]
struct SharedConnections {
    table: Mutex<ConnectionTable<CancellationToken>>,
    idle: IdleLimits,
    metrics: ConnectionMetrics,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, idle: IdleLimits, metrics: ConnectionMetrics) -> Self {
        metrics.limited(limits.connections, limits.unproven);
        let table = Mutex::new(ConnectionTable::new(limits));
        Self { shared: Arc::new(SharedConnections { table, idle, metrics }) }
    }

    /// Takes a place for a connection from `address`, if need be that of another connection, which is then closed.
    /// Returns `None` if all connections that could be replaced have requests in flight.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<OpenConnection> {
        let peer = Peer::from(address);
        let closed = CancellationToken::new();
        let number = self.change(|table| match table.admit(peer, |_| closed.clone()) {
            Admission::Accepted(number) => Some(number),
            Admission::Replaces(number, replaced) => {
                replaced.cancel();
                self.shared.metrics.closed(ClosedBy::Replaced);
                Some(number)
            }
            Admission::Refused => {
                self.shared.metrics.closed(ClosedBy::Refused);
                None
            }
        })?;
        Some(OpenConnection::new(self.clone(), number, peer, closed, self.shared.idle))
    }

    /// Closes the connection that matters least, so that its file descriptor becomes free.
    pub(crate) fn make_room(&self) {
        if let Some(least) = self.change(ConnectionTable::remove_least) {
            least.cancel();
            self.shared.metrics.closed(ClosedBy::Replaced);
        }
    }

    pub(crate) fn metrics(&self) -> &ConnectionMetrics {
        &self.shared.metrics
    }

    fn change<R>(&self, change: impl FnOnce(&mut ConnectionTable<CancellationToken>) -> R) -> R {
        let mut table = self.shared.table.lock();
        let result = change(&mut table);
        let counts = table.counts();
        self.shared.metrics.counted(counts.unproven, counts.proven);
        result
    }
}
