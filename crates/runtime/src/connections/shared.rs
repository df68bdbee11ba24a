//! The places of all connections of a port.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::limits::{ConnectionLimits, IdleLimits};
use super::metrics::{ClosedBy, ConnectionMetrics};
use super::table::ConnectionTable;

/// The connections of one port. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pub(super) shared: Arc<SharedConnections>,
}

#[derive(Debug)]
pub(super) struct SharedConnections {
    table: Mutex<ConnectionTable<CancellationToken>>,
    pub(super) idle: IdleLimits,
    pub(super) metrics: ConnectionMetrics,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, idle: IdleLimits, metrics: ConnectionMetrics) -> Self {
        metrics.limited(limits.connections, limits.unproven);
        let table = Mutex::new(ConnectionTable::new(limits));
        Self { shared: Arc::new(SharedConnections { table, idle, metrics }) }
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

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut ConnectionTable<CancellationToken>) -> R) -> R {
        let mut table = self.shared.table.lock();
        let result = change(&mut table);
        let counts = table.counts();
        self.shared.metrics.counted(counts.unproven, counts.proven);
        result
    }
}
