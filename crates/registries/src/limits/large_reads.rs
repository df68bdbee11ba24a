//! Large answers are read one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The large answers that a process reads at the same time.
static LARGE: Semaphore = Semaphore::const_new(1);
/// The longest time in which a large answer has to arrive: others wait for it.
pub(crate) const LARGE_TIME: Duration = Duration::from_secs(10);

/// The large answers of one client. It reads one at a time, so that it does not stand in the queue of the process many times.
#[derive(Clone, Debug)]
pub(crate) struct LargeReads(Arc<Semaphore>);

/// The right to read a large answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct LargeRead {
    /// When it has to be dropped.
    pub(crate) until: Instant,
    _of_client: Option<OwnedSemaphorePermit>,
    _of_process: Option<SemaphorePermit<'static>>,
}

impl Default for LargeReads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl LargeReads {
    /// Waits for the right to read a large answer. Whoever has it must not wait for another one, and drops it
    /// after [`LARGE_TIME`].
    pub(crate) async fn begin(&self) -> LargeRead {
        // They are never closed.
        let of_client = Arc::clone(&self.0).acquire_owned().await.ok();
        let of_process = LARGE.acquire().await.ok();
        LargeRead { until: Instant::now() + LARGE_TIME, _of_client: of_client, _of_process: of_process }
    }

    /// As [`begin`](Self::begin), until `deadline`.
    ///
    /// # Errors
    /// Fails with a text for people when others have it until then.
    pub(crate) async fn begin_until(&self, deadline: Instant) -> Result<LargeRead, String> {
        tokio::time::timeout_at(deadline, self.begin()).await.map_err(|_| {
            "other large answers are being read, one after the other; it is tried again".to_owned()
        })
    }
}
