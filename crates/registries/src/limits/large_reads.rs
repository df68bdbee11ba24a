//! Large answers are read one after the other.
//!
//! A registry that has taken long for its last one waits behind the other slow ones. At most one of these reads, or is in
//! the queue of the process. After it the others have as much time as it has taken. So registries that are known to be slow
//! use at most half of the time.

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
/// The longest wait for other large answers. It is no part of the timeout of a call, which the server has for its answer. A
/// waiting read counts as a call of its connection, so others may wait for it.
const LARGE_WAIT: Duration = Duration::from_secs(30);
/// A large answer that takes longer makes its registry a slow one.
const SLOW_FROM: Duration = Duration::from_secs(2);
/// A large answer that takes less than [`SLOW_FROM`] ends that, if the last slow one was this time ago. An earlier one may be
/// that of another address.
const SLOW_FOR: Duration = Duration::from_secs(600);

/// The large answers of one client. It reads one at a time, so that it does not stand in the queue of the process many times.
#[derive(Clone, Debug)]
pub(crate) struct LargeReads {
    turn: Arc<Semaphore>,
    slow_at: SlowAt,
}

/// When a registry was slow last, if it is slow.
type SlowAt = Arc<Mutex<Option<Instant>>>;

/// The right to read a large answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct LargeRead {
    /// When it has to be dropped.
    pub(crate) until: Instant,
    begin: Instant,
    slow_at: SlowAt,
    of_slow: Option<MutexGuard<'static, Option<Instant>>>,
    _of_client: Option<OwnedSemaphorePermit>,
    _of_process: Option<SemaphorePermit<'static>>,
}

impl Default for LargeReads {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), slow_at: Arc::default() }
    }
}

impl LargeReads {
    /// Waits for the right to read a large answer. Whoever has it must not wait for another one, and drops it
    /// after [`LARGE_TIME`].
    ///
    /// # Errors
    /// Fails with a text for people when others have it for [`LARGE_WAIT`].
    pub(crate) async fn begin(&self) -> Result<LargeRead, String> {
        self.begin_until(Instant::now() + LARGE_WAIT).await
    }

    async fn begin_until(&self, deadline: Instant) -> Result<LargeRead, String> {
        let turn = async {
            // Semaphores are never closed.
            let of_client = Arc::clone(&self.turn).acquire_owned().await.ok();
            let is_slow = self.slow_at.lock().is_some();
            let of_slow = if is_slow { Some(SLOW.lock().await) } else { None };
            if let Some(next) = of_slow.as_ref().and_then(|next| **next) {
                tokio::time::sleep_until(next).await;
            }
            (of_client, of_slow, LARGE.acquire().await.ok())
        };
        let (of_client, of_slow, of_process) =
            tokio::time::timeout_at(deadline, turn).await.map_err(|_| {
                "other large answers are being read, one after the other; it is tried again".to_owned()
            })?;
        let begin = Instant::now();
        Ok(LargeRead {
            until: begin + LARGE_TIME,
            begin,
            slow_at: Arc::clone(&self.slow_at),
            of_slow,
            _of_client: of_client,
            _of_process: of_process,
        })
    }
}

impl LargeRead {
    /// Does `work` for a read that may have this right, and stops it when the right has to be dropped.
    ///
    /// # Errors
    /// Fails with a text for people if the work has not ended by then.
    pub(crate) async fn within<F: Future>(right: Option<&Self>, work: F) -> Result<F::Output, String> {
        let Some(right) = right else { return Ok(work.await) };
        let late = |_| format!("a large answer did not arrive within {} s", LARGE_TIME.as_secs());
        tokio::time::timeout_at(right.until, work).await.map_err(late)
    }
}

impl Drop for LargeRead {
    fn drop(&mut self) {
        let took = self.begin.elapsed();
        let mut slow_at = self.slow_at.lock();
        if took > SLOW_FROM {
            *slow_at = Some(self.begin);
        } else if slow_at.is_some_and(|at| at.elapsed() > SLOW_FOR) {
            *slow_at = None;
        }
        if let Some(next) = &mut self.of_slow {
            **next = Some(Instant::now() + took);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    /// The tests share the queue of the process.
    static ALONE: AsyncMutex<()> = AsyncMutex::const_new(());

    impl LargeRead {
        /// Ends as if it had taken this time.
        fn end_after(mut self, time: Duration) {
            self.begin = self.begin.checked_sub(time).unwrap();
        }

        /// Returns a right that has to be dropped now. Nobody waits for it.
        pub(crate) fn ended() -> Self {
            let now = Instant::now();
            let slow_at = Arc::default();
            Self { until: now, begin: now, slow_at, of_slow: None, _of_client: None, _of_process: None }
        }
    }

    #[tokio::test]
    async fn slow_registries_leave_others_their_turn() {
        let _alone = ALONE.lock().await;
        let [one, two, three, others] = [(); 4].map(|()| LargeReads::default());
        for slow in [&one, &two, &three] {
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
        let (mut slow, mut other) = (pin!(three.begin()), pin!(others.begin()));
        assert!(poll!(&mut slow).is_pending() && poll!(&mut other).is_pending());
        read.end_after(LARGE_TIME);
        assert!(poll!(&mut slow).is_pending());
        other.await.unwrap().end_after(Duration::ZERO);
        // `one` was fast, and slow just before that. Later it is fast again.
        assert!(one.slow_at.lock().is_some());
        *one.slow_at.lock() = Instant::now().checked_sub(SLOW_FOR);
        let mut fast = LargeRead::ended();
        fast.slow_at = Arc::clone(&one.slow_at);
        drop(fast);
        for other in [&others, &one, &others] {
            assert!(poll!(&mut slow).is_pending());
            let mut other = pin!(other.begin());
            assert!(poll!(&mut other).is_ready());
        }
    }

    #[tokio::test]
    async fn the_wait_for_the_own_turn_is_limited_too() {
        let _alone = ALONE.lock().await;
        let client = LargeReads::default();
        let read = client.begin().await.unwrap();
        let second = tokio::time::timeout(LARGE_TIME, client.begin_until(Instant::now())).await;
        assert!(second.unwrap().unwrap_err().contains("tried again"));
        drop(read);
        client.begin().await.unwrap().end_after(Duration::ZERO);
    }
}
