//! The time of a read, such as a count of pods, and which questions it answers.

use std::time::{Duration, Instant};

use podward_kube_util::{ApiError, CachedPod};

/// The time for which a count is used for other pods of the same owner. A scale-in of many pods arrives as one burst:
/// otherwise each pod would cause a list of all pods. The result of one count is consistent for all pods together.
const COUNT_VALID_FOR: Duration = Duration::from_secs(1);
/// A read that takes at least this time is followed by a pause.
const SLOW_READ: Duration = Duration::from_millis(250);

/// The time of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTime {
    began: Instant,
    ended: Instant,
}

impl ReadTime {
    /// Returns the time of a read that ends now.
    pub(crate) fn since(began: Instant) -> Self {
        ReadTime { began, ended: Instant::now() }
    }

    /// Returns the time since the read began.
    pub(crate) fn age(self) -> Duration {
        self.began.elapsed()
    }

    /// Returns whether the read began after `asked`, so that it is as good as a new one. Pods that wait for a slow read
    /// of another pod share the next one, and do not read one after the other.
    pub(crate) fn answers(self, asked: Instant) -> bool {
        self.began >= asked
    }

    /// Returns whether the count answers a question of the time `asked`, or began a moment ago.
    pub(crate) fn is_current(self, asked: Instant) -> bool {
        self.answers(asked) || self.began.elapsed() < COUNT_VALID_FOR
    }

    /// As [`is_current`](Self::is_current), for a count whose result is checked again later: it may also have ended a
    /// moment ago.
    pub(crate) fn is_recent(self, asked: Instant) -> bool {
        self.is_current(asked) || self.ended.elapsed() < COUNT_VALID_FOR
    }

    /// Returns the time until the same may be read again, so that slow reads take at most a third of the time.
    pub(crate) fn pause(self) -> Duration {
        let took = self.ended.duration_since(self.began);
        if took < SLOW_READ { Duration::ZERO } else { (2 * took).saturating_sub(self.ended.elapsed()) }
    }
}

/// The last read of something that many pods need. Its owner holds a lock while it reads.
#[derive(Debug, Default)]
pub(crate) struct LastRead {
    succeeded: Option<ReadTime>,
    /// The last read, if it timed out: what it was, and the timeout.
    timed_out: Option<(ReadTime, &'static str, Duration)>,
}

impl LastRead {
    /// Waits until `pod`, which has waited for the lock since `asked`, may read again.
    ///
    /// # Errors
    /// Fails if a read timed out meanwhile. Otherwise the pods that wait would repeat it one after the other.
    pub(crate) async fn before_next(&self, pod: &CachedPod, asked: Instant) -> Result<(), ApiError> {
        if let Some((time, what, after)) = self.timed_out
            && time.ended >= asked
        {
            return Err(ApiError::TimedOut { what, pod: pod.key(), after });
        }
        let pause = self.succeeded.map_or(Duration::ZERO, ReadTime::pause);
        // A sleep of no time would last until the next tick of the timer.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Stores the end of a read that began at `began`.
    pub(crate) fn ended<T>(&mut self, began: Instant, read: &Result<T, ApiError>) {
        let time = ReadTime::since(began);
        match read {
            Ok(_) => *self = LastRead { succeeded: Some(time), timed_out: None },
            Err(ApiError::TimedOut { what, after, .. }) => self.timed_out = Some((time, what, *after)),
            Err(_) => {}
        }
    }
}
