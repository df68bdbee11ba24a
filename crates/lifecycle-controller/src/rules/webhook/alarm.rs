//! When people are told of a webhook that fails.

use podward_core::UnixNanos;

const FIRST: i64 = 60_000_000_000;
/// An event is kept for an hour as a rule; so one that still counts is always there.
const LAST: i64 = 30 * 60_000_000_000;

/// Rings at the first failure, and then ever less often while failures go on: each ring is a write.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    pause: i64,
    quiet_until: Option<UnixNanos>,
}

impl Alarm {
    /// There was a failure: whether people are to be told now.
    pub(super) fn rings(&mut self, now: UnixNanos) -> bool {
        // A clock that was set back must not silence it.
        self.quiet_until =
            self.quiet_until.map(|until| until.min(UnixNanos(now.0.saturating_add(self.pause))));
        let until = self.quiet_until;
        if until.is_some_and(|until| now < until) {
            return false;
        }
        // One that was well for as long as it was kept quiet begins anew.
        let goes_on = until.is_some_and(|until| now.0.saturating_sub(until.0) <= self.pause);
        self.pause = if goes_on { (2 * self.pause).min(LAST) } else { FIRST };
        self.quiet_until = Some(UnixNanos(now.0.saturating_add(self.pause)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000_000;

    #[test]
    fn failures_that_go_on_are_told_ever_less_often() {
        let mut alarm = Alarm::default();
        // A failure every ten seconds, for a day.
        let rings: Vec<i64> =
            (0..6 * 60 * 24).map(|turn| turn * MINUTE / 6).filter(|at| alarm.rings(UnixNanos(*at))).collect();
        assert_eq!(rings[..5], [0, MINUTE, 3 * MINUTE, 7 * MINUTE, 15 * MINUTE]);
        assert!(rings.len() < 60, "{}", rings.len());
        assert!(rings.windows(2).all(|pair| pair[1] - pair[0] <= LAST));
    }

    #[test]
    fn one_that_was_well_for_long_is_told_of_at_once() {
        let mut alarm = Alarm::default();
        let told =
            [0, 30, 60, 90, 1000, 1030, 1060].map(|second| alarm.rings(UnixNanos(second * 1_000_000_000)));
        assert_eq!(told, [true, false, true, false, true, false, true]);
        // Though the clock was set back.
        assert!(!alarm.rings(UnixNanos(0)));
        assert!(alarm.rings(UnixNanos(121_000_000_000)));
    }
}
