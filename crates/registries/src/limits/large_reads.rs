//! Large answers are read one after the other.
//!
//! A registry that takes long for one waits behind the other slow ones from then on. At most one of these reads, or is
//! in the queue of the process, and after it the others have as much time as it has taken. So however many there are,
//! registries that are not slow get their turn.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The large answers that a process reads at the same time.
static LARGE: Semaphore = Semaphore::const_new(1);
/// The turn of the slow registries, and when the next one may begin.
static SLOW: AsyncMutex<Option<Instant>> = AsyncMutex::const_new(None);
/// The longest time in which a large answer has to arrive: others wait for it.
pub(crate) const LARGE_TIME: Duration = Duration::from_secs(10);
/// The longest wait for other registries. It is no part of the timeout of a call, which the server has for its answer.
const LARGE_WAIT: Duration = Duration::from_secs(60);
/// A registry whose large answer takes longer is a slow one, for some time.
const SLOW_FROM: Duration = Duration::from_secs(2);
const SLOW_FOR: Duration = Duration::from_secs(600);

/// The large answers of one client. It reads one at a time, so that it does not stand in the queue of the process many times.
#[derive(Clone, Debug)]
pub(crate) struct LargeReads {
    turn: Arc<Semaphore>,
    /// Until when it counts as slow.
    slow_until: Arc<Mutex<Option<Instant>>>,
}

/// The right to read a large answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct LargeRead {
    /// When it has to be dropped.
    pub(crate) until: Instant,
    begin: Instant,
    slow_until: Arc<Mutex<Option<Instant>>>,
    of_slow: Option<MutexGuard<'static, Option<Instant>>>,
    _of_client: Option<OwnedSemaphorePermit>,
    _of_process: Option<SemaphorePermit<'static>>,
}

impl Default for LargeReads {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), slow_until: Arc::default() }
    }
}

impl LargeReads {
    /// Waits for the right to read a large answer. Whoever has it must not wait for another one, and drops it
    /// after [`LARGE_TIME`].
    ///
    /// # Errors
    /// Fails with a text for people when other registries have it for [`LARGE_WAIT`].
    pub(crate) async fn begin(&self) -> Result<LargeRead, String> {
        // Semaphores are never closed.
        let of_client = Arc::clone(&self.turn).acquire_owned().await.ok();
        let turn = async {
            let is_slow = self.slow_until.lock().is_some_and(|until| Instant::now() < until);
            let of_slow = if is_slow { Some(SLOW.lock().await) } else { None };
            if let Some(next) = of_slow.as_ref().and_then(|next| **next) {
                tokio::time::sleep_until(next).await;
            }
            (of_slow, LARGE.acquire().await.ok())
        };
        let (of_slow, of_process) = tokio::time::timeout(LARGE_WAIT, turn).await.map_err(|_| {
            "other large answers are being read, one after the other; it is tried again".to_owned()
        })?;
        let begin = Instant::now();
        Ok(LargeRead {
            until: begin + LARGE_TIME,
            begin,
            slow_until: Arc::clone(&self.slow_until),
            of_slow,
            _of_client: of_client,
            _of_process: of_process,
        })
    }
}

impl Drop for LargeRead {
    fn drop(&mut self) {
        let (now, took) = (Instant::now(), self.begin.elapsed());
        if took > SLOW_FROM {
            *self.slow_until.lock() = Some(now + SLOW_FOR);
        }
        if let Some(next) = &mut self.of_slow {
            **next = Some(now + took);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    impl LargeRead {
        /// Ends as if it had taken this time.
        fn end_after(mut self, time: Duration) {
            self.begin = self.begin.checked_sub(time).unwrap();
        }
    }

    #[tokio::test]
    async fn slow_registries_leave_others_their_turn() {
        let [one, two, others] = [(); 3].map(|()| LargeReads::default());
        for slow in [&one, &two] {
            slow.begin().await.unwrap().end_after(LARGE_TIME);
        }
        // At most one is in the queue, whoever asked first.
        let read = one.begin().await.unwrap();
        let (mut slow, mut other) = (pin!(two.begin()), pin!(others.begin()));
        assert!(poll!(&mut slow).is_pending() && poll!(&mut other).is_pending());
        drop(read);
        assert!(poll!(&mut slow).is_pending());
        other.await.unwrap().end_after(Duration::ZERO);
        let read = slow.await.unwrap();

        // After its read others have time.
        let (mut slow, mut other) = (pin!(one.begin()), pin!(others.begin()));
        assert!(poll!(&mut slow).is_pending() && poll!(&mut other).is_pending());
        read.end_after(LARGE_TIME);
        assert!(poll!(&mut slow).is_pending());
        other.await.unwrap().end_after(Duration::ZERO);
        for _ in 0..3 {
            assert!(poll!(&mut slow).is_pending());
            let mut other = pin!(others.begin());
            assert!(poll!(&mut other).is_ready());
        }
    }
}
