//! Time as the wire has it.

use std::fmt;

/// Nanoseconds since the Unix epoch: the value of every timestamp label. The core has no clock; callers pass the time in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(pub i64);

impl fmt::Display for UnixNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
