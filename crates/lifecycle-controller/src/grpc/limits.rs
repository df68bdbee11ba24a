//! Bounds of what callers can hold here, besides those of the port itself.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Places for streams, which last.
#[derive(Clone, Debug)]
pub(super) struct Places {
    what: &'static str,
    free: Arc<Semaphore>,
}

impl Places {
    /// `count` places for `what`, a plural.
    pub(super) fn new(what: &'static str, count: usize) -> Self {
        Self { what, free: Arc::new(Semaphore::new(count)) }
    }

    /// A place, until it is dropped.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "this replica serves no more {}; try again with back-off",
                self.what
            ))
        })
    }
}
