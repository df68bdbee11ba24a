//! The maximum number of streams that a replica serves at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// The maximum number of streams of one kind. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StreamLimit {
    kind: &'static str,
    free: Arc<Semaphore>,
}

impl StreamLimit {
    /// Returns a limit of `count` streams. `kind` is a plural, for messages.
    pub(super) fn new(kind: &'static str, count: usize) -> Self {
        Self { kind, free: Arc::new(Semaphore::new(count)) }
    }

    /// Counts a stream until the returned permit is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the maximum is reached.
    pub(super) fn acquire(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "this replica already serves the maximum number of {}; try again with back-off",
                self.kind
            ))
        })
    }
}
