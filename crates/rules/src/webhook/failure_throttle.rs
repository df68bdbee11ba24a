//! Limits how often the failures of a webhook are reported.

use podward_core::UnixNanos;

/// In nanoseconds.
const FIRST_PAUSE: i64 = 60_000_000_000;
/// In nanoseconds. Kubernetes keeps events for an hour by default, so there is always an event of a failure that lasts.
const LONGEST_PAUSE: i64 = 30 * 60_000_000_000;

/// Lets the first failure be reported, and then fewer and fewer while failures continue: each report is a write.
#[derive(Debug, Default)]
pub(super) struct FailureThrottle {
    pause: i64,
    quiet_until: Option<UnixNanos>,
}

impl FailureThrottle {
    /// Notes a failure at `now`. Returns true if it is to be reported.
    pub(super) fn is_due(&mut self, now: UnixNanos) -> bool {
        // Reports continue when the clock is set back.
        self.quiet_until =
            self.quiet_until.map(|until| until.min(UnixNanos(now.0.saturating_add(self.pause))));
        let until = self.quiet_until;
        if until.is_some_and(|until| now < until) {
            return false;
        }
        // A webhook that did not fail for a whole pause after the last one starts again with the first pause.
        let continues = until.is_some_and(|until| now.0.saturating_sub(until.0) <= self.pause);
        self.pause = if continues { (2 * self.pause).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        self.quiet_until = Some(UnixNanos(now.0.saturating_add(self.pause)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000_000;

    #[test]
    fn failures_that_continue_are_reported_less_and_less_often() {
        let mut throttle = FailureThrottle::default();
        // A failure every ten seconds, for a day.
        let reports: Vec<i64> = (0..6 * 60 * 24)
            .map(|turn| turn * MINUTE / 6)
            .filter(|at| throttle.is_due(UnixNanos(*at)))
            .collect();
        assert_eq!(reports[..5], [0, MINUTE, 3 * MINUTE, 7 * MINUTE, 15 * MINUTE]);
        assert!(reports.len() < 60, "{}", reports.len());
        assert!(reports.windows(2).all(|pair| pair[1] - pair[0] <= LONGEST_PAUSE));
    }

    #[test]
    fn a_failure_after_a_long_success_is_reported_at_once() {
        let mut throttle = FailureThrottle::default();
        let due = [0, 30, 60, 90, 1000, 1030, 1060]
            .map(|second| throttle.is_due(UnixNanos(second * 1_000_000_000)));
        assert_eq!(due, [true, false, true, false, true, false, true]);
        // The clock was set back.
        assert!(!throttle.is_due(UnixNanos(0)));
        assert!(throttle.is_due(UnixNanos(121_000_000_000)));
    }
}
