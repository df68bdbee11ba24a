//! The clock.

use jiff::Timestamp;
use podward_core::UnixNanos;

/// Returns the present time.
pub(crate) fn now() -> UnixNanos {
    UnixNanos(i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
}
