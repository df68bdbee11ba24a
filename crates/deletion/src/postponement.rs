//! The time by which a deletion that cannot be executed is postponed.

use std::time::Duration;

use podward_core::UnixNanos;
use podward_runtime::retry::{ExponentialBuilder, delay_after, jittered};

const LONGEST: Duration = Duration::from_secs(800);
/// About 30 s at first, about 10 min at most.
const POSTPONEMENT: ExponentialBuilder = jittered(Duration::from_secs(40), LONGEST);

/// Returns the time by which a deletion is postponed that was postponed `times` before.
pub(crate) fn next(times: u32) -> Duration {
    delay_after(POSTPONEMENT, times.saturating_add(1))
}

/// Returns the time left at `now` of a postponement until `until`; `None` if it is over. More than the longest
/// postponement means that the clock of the leader that wrote `until` was ahead: it counts as over.
pub(crate) fn left(until: UnixNanos, now: UnixNanos) -> Option<Duration> {
    let left = until.since(now);
    (!left.is_zero() && left <= LONGEST).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

    fn left_after(seconds: i64) -> Option<u64> {
        left(UnixNanos(NOW.0 + seconds * 1_000_000_000), NOW).map(|left| left.as_secs())
    }

    #[test]
    fn a_postponement_is_at_most_the_longest_one() {
        for times in [0, 1, 5, 100, u32::MAX] {
            assert!(next(times) <= LONGEST);
        }
        assert_eq!((left_after(30), left_after(800)), (Some(30), Some(800)));
        assert_eq!((left_after(0), left_after(-30)), (None, None));
        // The clock of the leader before was an hour ahead.
        assert_eq!((left_after(801), left_after(3630)), (None, None));
        assert_eq!(left(UnixNanos(i64::MAX), NOW), None);
    }
}
