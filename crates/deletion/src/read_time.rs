//! The time of a read, such as a count of pods, and which questions it answers.

use std::time::{Duration, Instant};

/// The time for which a count is used for other pods of the same owner. A scale-in of many pods arrives as one burst:
/// otherwise each pod would cause a list of all pods. The result of one count is consistent for all pods together.
const COUNT_VALID_FOR: Duration = Duration::from_secs(1);

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

    /// Returns the time until the same may be read again, so that reads take at most a third of the time.
    pub(crate) fn pause(self) -> Duration {
        (2 * self.ended.duration_since(self.began)).saturating_sub(self.ended.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_twice_as_long_as_the_read() {
        let ended = Instant::now();
        let took =
            |seconds| ReadTime { began: ended - Duration::from_secs(seconds), ended }.pause().as_secs_f64();
        assert!((9.0..=10.0).contains(&took(5)), "{}", took(5));
        let ended_before =
            ReadTime { began: ended - Duration::from_secs(9), ended: ended - Duration::from_secs(6) };
        assert_eq!(ended_before.pause(), Duration::ZERO);
    }
}
