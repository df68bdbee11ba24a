//! Which pods have changed.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The pods of a namespace that have changed since one task took them last.
#[derive(Debug, Default)]
pub(crate) struct PodChanges {
    uids: Mutex<HashSet<String>>,
    notify: Notify,
}

impl PodChanges {
    /// Adds pods, and wakes the task.
    pub(super) fn add(&self, uids: impl IntoIterator<Item = String>) {
        self.uids.lock().extend(uids);
        self.notify.notify_one();
    }

    /// Takes the UIDs of the pods that were added, replaced or removed since the last call.
    pub(crate) fn take(&self) -> HashSet<String> {
        std::mem::take(&mut *self.uids.lock())
    }

    /// Returns when something has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }
}
