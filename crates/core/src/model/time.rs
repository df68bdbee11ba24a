//! Points in time.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since the Unix epoch, as in the timestamp labels. The core has no clock; callers pass the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Reads a time in the format of the API server (RFC 3339). Returns `None` when the text is not such a time.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let time: jiff::Timestamp = text.parse().ok()?;
        i64::try_from(time.as_nanosecond()).ok().map(UnixNanos)
    }

    /// Returns the time in RFC 3339 with whole seconds: `2026-01-01T10:00:00Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .map_or_else(|_| self.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    /// Returns the time in RFC 3339 with milliseconds: `2026-01-01T10:00:00.250Z`.
    #[must_use]
    pub fn to_rfc3339_millis(self) -> String {
        jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .map_or_else(|_| self.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
    }

    /// Returns the time without the nanoseconds beyond whole microseconds.
    #[must_use]
    pub fn whole_micros(self) -> Self {
        UnixNanos(self.0.saturating_sub(self.0.rem_euclid(1_000)))
    }

    /// Returns the time that has passed since `earlier`, or zero when `earlier` is in the future.
    #[must_use]
    pub fn since(self, earlier: UnixNanos) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }
}

impl fmt::Display for UnixNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let time = UnixNanos::parse("2026-01-01T10:00:00Z").unwrap();
        assert_eq!(time.to_rfc3339(), "2026-01-01T10:00:00Z");
        assert_eq!(UnixNanos::parse("yesterday"), None);
        assert_eq!(time.since(UnixNanos(time.0 - 1_500_000_000)), Duration::from_millis(1500));
        assert_eq!(time.since(UnixNanos(i64::MAX)), Duration::ZERO);
        assert_eq!(UnixNanos(i64::MIN).to_rfc3339(), "1677-09-21T00:12:43Z");
    }
}
