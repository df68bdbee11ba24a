//! The clock of the process, and arithmetic with times.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podward_core::UnixNanos;

/// A clock that never jumps: the wall clock at the start, plus the monotonic time since. Waits are measured with it, so
/// that a correction of the wall clock neither shortens nor extends a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    unix: i64,
}

impl Clock {
    /// Reads the wall clock once.
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix: nanos(unix) }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> UnixNanos {
        UnixNanos(self.unix.saturating_add(nanos(self.start.elapsed())))
    }
}

/// Returns a duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns `time` plus `duration`.
pub(crate) fn after(time: UnixNanos, duration: Duration) -> UnixNanos {
    UnixNanos(time.0.saturating_add(nanos(duration)))
}

/// Returns `time` minus `duration`.
pub(crate) fn before(time: UnixNanos, duration: Duration) -> UnixNanos {
    UnixNanos(time.0.saturating_sub(nanos(duration)))
}

/// Returns the time from `earlier` to `later`, or zero if `later` is not later.
pub(crate) fn between(earlier: UnixNanos, later: UnixNanos) -> Duration {
    Duration::from_nanos(u64::try_from(later.0.saturating_sub(earlier.0)).unwrap_or_default())
}
