//! Times in the form that labels and annotations use: nanoseconds since the Unix epoch.

use jiff::Timestamp;
use podward_core::UnixNanos;

/// Converts `time`. A time after the year 2262 becomes the largest value.
#[must_use]
pub fn unix_nanos(time: Timestamp) -> UnixNanos {
    UnixNanos(i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX))
}

/// Returns the current time of the wall clock.
#[must_use]
pub fn now() -> UnixNanos {
    unix_nanos(Timestamp::now())
}
