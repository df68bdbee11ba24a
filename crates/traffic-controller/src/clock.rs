//! Time as this process counts it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podward_core::UnixNanos;

/// Unix time that never jumps: the wall clock at the start, and what a steady clock has counted since. Waits are measured by it, so
/// that a corrected wall clock neither ends nor prolongs one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    unix: i64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix: nanos(unix) }
    }

    pub(crate) fn now(&self) -> UnixNanos {
        UnixNanos(self.unix.saturating_add(nanos(self.start.elapsed())))
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// `time` and `duration` more.
pub(crate) fn after(time: UnixNanos, duration: Duration) -> UnixNanos {
    UnixNanos(time.0.saturating_add(nanos(duration)))
}

/// `time` and `duration` less.
pub(crate) fn before(time: UnixNanos, duration: Duration) -> UnixNanos {
    UnixNanos(time.0.saturating_sub(nanos(duration)))
}

/// How long after `earlier` is `later`; nothing if it isn't.
pub(crate) fn between(earlier: UnixNanos, later: UnixNanos) -> Duration {
    Duration::from_nanos(u64::try_from(later.0.saturating_sub(earlier.0)).unwrap_or_default())
}
