//! Time as the wire has it.

use std::fmt;

use jiff::Timestamp;

/// Nanoseconds since the Unix epoch: the value of every timestamp label. The core has no clock; callers pass the time in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub i64);

impl fmt::Display for UnixNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The time for people, in whole seconds: `2026-01-01T10:00:00Z`.
pub(crate) fn text(time: UnixNanos) -> String {
    Timestamp::from_nanosecond(time.0.into())
        .map_or_else(|_| time.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_words() {
        assert_eq!(text(UnixNanos(1_767_261_600_500_000_000)), "2026-01-01T10:00:00Z");
        assert_eq!(text(UnixNanos(i64::MIN)), "1677-09-21T00:12:43Z");
    }
}
