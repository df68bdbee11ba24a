//! Reads that requests share which arrive at the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use podward_kube_util::ApiError;

use crate::last_timeout::LastTimeout;
use crate::read_time::ReadTime;

type SharedRead<T> = Arc<tokio::sync::Mutex<(Option<(ReadTime, T)>, LastTimeout)>>;

/// One entry for each key for which a request is being decided. Clones share the entries.
pub(crate) struct SharedReads<T> {
    entries: Arc<Mutex<HashMap<String, SharedRead<T>>>>,
}

// Derived, they would require the same of `T`.
impl<T> Clone for SharedReads<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone() }
    }
}

impl<T> Default for SharedReads<T> {
    fn default() -> Self {
        Self { entries: Arc::default() }
    }
}

impl<T> SharedReads<T> {
    /// Decides with what `read` returns for `key`, which is read after this call. Requests that wait for a read share the
    /// next one, and `decide` shows the others what it has decided by changing the value.
    ///
    /// # Errors
    /// Fails if `read` or `decide` fails. Then the next request reads again, unless it waited for a read that timed out.
    pub(crate) async fn decide<R>(
        &self,
        key: &str,
        read: impl AsyncFnOnce() -> Result<T, ApiError>,
        decide: impl AsyncFnOnce(&mut T) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        let asked = Instant::now();
        let entry = {
            let mut entries = self.entries.lock();
            // Of requests whose callers have gone.
            entries.retain(|_, entry| Arc::strong_count(entry) > 1);
            entries.entry(key.to_owned()).or_default().clone()
        };
        // Boxed: its size would count in each caller's.
        let decided = Box::pin(decide_with(&mut *entry.lock().await, asked, read, decide)).await;
        let mut entries = self.entries.lock();
        // The map and this function: no other request waits.
        if Arc::strong_count(&entry) <= 2 {
            entries.remove(key);
        }
        decided
    }
}

async fn decide_with<T, R>(
    (shared, last_timeout): &mut (Option<(ReadTime, T)>, LastTimeout),
    asked: Instant,
    read: impl AsyncFnOnce() -> Result<T, ApiError>,
    decide: impl AsyncFnOnce(&mut T) -> Result<R, ApiError>,
) -> Result<R, ApiError> {
    let (time, mut value) = match shared.take().filter(|(time, _)| time.answers(asked)) {
        Some(found) => found,
        None => {
            let began = Instant::now();
            let value = last_timeout.read(asked, read).await?;
            (ReadTime::since(began), value)
        }
    };
    let decided = decide(&mut value).await?;
    *shared = Some((time, value));
    Ok(decided)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use futures::future::join_all;
    use podward_kube_util::PodKey;

    use super::*;

    #[tokio::test]
    async fn requests_at_the_same_time_share_a_read_and_see_each_others_decisions() {
        let (shared, reads) = (SharedReads::default(), Cell::new(0));
        let read = async || {
            reads.set(reads.get() + 1);
            tokio::task::yield_now().await;
            Ok(3)
        };
        let take = async |left: &mut u32| {
            let is_left = *left > 0;
            *left = left.saturating_sub(1);
            Ok(is_left)
        };
        let taken = join_all((0..8).map(async |_| shared.decide("one", read, take).await.unwrap())).await;
        // The first read began before the others asked.
        assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 1 + 3);
        assert_eq!(reads.get(), 2);
        assert!(shared.decide("one", read, take).await.unwrap(), "a later request reads again");
        assert!(shared.decide("other", read, take).await.unwrap(), "each key has a read of its own");
        assert_eq!(reads.get(), 4);
        assert!(shared.entries.lock().is_empty());
    }

    #[tokio::test]
    async fn after_a_failed_decision_the_next_request_reads_again() {
        let (shared, reads) = (SharedReads::default(), Cell::new(0));
        let read = async || {
            reads.set(reads.get() + 1);
            tokio::task::yield_now().await;
            Ok(())
        };
        let decide = async |(): &mut ()| match reads.get() {
            1 => Err(ApiError::Conflict {
                what: "try",
                pod: PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned() },
            }),
            _ => Ok(()),
        };
        let decided = join_all((0..3).map(async |_| shared.decide("one", read, decide).await)).await;
        assert!(decided[0].is_err() && decided[1].is_ok() && decided[2].is_ok(), "{decided:?}");
        assert_eq!(reads.get(), 2);
    }

    #[tokio::test]
    async fn requests_that_wait_for_a_read_share_its_timeout() {
        let (shared, reads) = (SharedReads::<()>::default(), Cell::new(0));
        let timeout = async || {
            reads.set(reads.get() + 1);
            tokio::task::yield_now().await;
            let pod = PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned() };
            Err(ApiError::TimedOut { what: "list the pods", pod, after: Duration::from_secs(10) })
        };
        let decide = async |(): &mut ()| Ok(());
        let decided = join_all((0..8).map(async |_| shared.decide("one", timeout, decide).await)).await;
        assert!(
            decided.iter().all(|decided| matches!(decided, Err(ApiError::TimedOut { .. }))),
            "{decided:?}"
        );
        // The first read began before the others asked.
        assert!(reads.get() <= 2, "{} reads", reads.get());
        let before = reads.get();
        shared.decide("one", timeout, decide).await.unwrap_err();
        assert_eq!(reads.get(), before + 1, "a later request reads again");
    }
}
