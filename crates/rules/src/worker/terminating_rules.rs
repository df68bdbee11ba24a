//! The PodTransitionRules whose finalizer is being removed by [`rule_release`](super::rule_release).

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum number of objects that are written at the same time.
const MAX_CONCURRENT: usize = 4;

/// The PodTransitionRules whose finalizer is being removed.
pub(crate) struct TerminatingRules {
    /// By UID.
    released: Mutex<HashSet<String>>,
    writes: Semaphore,
}

impl Default for TerminatingRules {
    fn default() -> Self {
        Self { released: Mutex::default(), writes: Semaphore::new(MAX_CONCURRENT) }
    }
}

impl TerminatingRules {
    /// Adds an object. Returns false if it is there already.
    pub(super) fn begin(&self, uid: &str) -> bool {
        self.released.lock().insert(uid.to_owned())
    }

    /// Removes an object.
    pub(super) fn end(&self, uid: &str) {
        self.released.lock().remove(uid);
    }

    /// Waits for the permit to write an object. Returns `None` only if the semaphore is closed, which it never is.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.writes.acquire().await.ok()
    }
}
