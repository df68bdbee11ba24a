//! The index that all tasks of the process share, with notifications of changes.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::index::EndpointIndex;

/// The index, the clock that its times come from, and a channel for notifications.
#[derive(Debug)]
pub(crate) struct SharedIndex {
    pub(crate) clock: Clock,
    /// Never locked across an await.
    pub(crate) index: Mutex<EndpointIndex>,
    changes: watch::Sender<()>,
}

impl SharedIndex {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, index: Mutex::default(), changes: watch::Sender::new(()) }
    }

    /// Notifies all subscribers that the index, or something that the answers depend on, has changed.
    pub(crate) fn notify_changed(&self) {
        self.changes.send_replace(());
    }

    /// Returns a receiver that is notified of all changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}
