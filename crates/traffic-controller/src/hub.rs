//! What everybody here shares: the world, and word that something in it or around it has changed.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::world::World;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    /// Locked for moments only, never over an await.
    pub(crate) world: Mutex<World>,
    changes: watch::Sender<()>,
}

impl Hub {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, world: Mutex::default(), changes: watch::Sender::new(()) }
    }

    /// Wakes those who wait.
    pub(crate) fn changed(&self) {
        self.changes.send_replace(());
    }

    /// Tells of changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}
