//! Limits the events about writes of a pod that the API server refuses.

use std::time::{Duration, Instant};

/// The shortest time between two events about a pod. The writes are retried more often.
const FIRST_DELAY: Duration = Duration::from_secs(60);
/// The longest time between two events about the same refusal. The API server keeps events for an hour.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 60);

/// The refusal of a pod that was reported last.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<ReportedRefusal>,
}

#[derive(Debug)]
struct ReportedRefusal {
    text: String,
    at: Instant,
    /// The time until the same refusal is reported again.
    delay: Duration,
}

impl Refusals {
    /// Returns true if the refusal `text` is reported now. The same refusal is reported at growing intervals.
    pub(super) fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let delay = match &self.last {
            None => FIRST_DELAY,
            Some(last) => {
                let is_same = last.text == text;
                let wait = if is_same { last.delay } else { FIRST_DELAY };
                if now.saturating_duration_since(last.at) < wait {
                    return false;
                }
                if is_same { (last.delay * 2).min(LONGEST_DELAY) } else { FIRST_DELAY }
            }
        };
        self.last = Some(ReportedRefusal { text: text.to_owned(), at: now, delay });
        true
    }

    /// Records that no write is refused now. The next refusal is reported soon.
    pub(super) fn ended(&mut self) {
        if let Some(last) = &mut self.last {
            last.delay = FIRST_DELAY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_at_growing_intervals() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        // Retried every 20 s for two hours.
        let reported: Vec<u64> = (0..360)
            .map(|retry| retry * 20)
            .filter(|second| refusals.is_due("denied", start + Duration::from_secs(*second)))
            .map(|second| second / 60)
            .collect();
        assert_eq!(reported, [0, 1, 3, 7, 15, 31, 61, 91]);
    }

    #[test]
    fn another_refusal_and_one_after_a_success_are_reported_sooner() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let minutes = |minutes: u32| start + FIRST_DELAY * minutes;
        for minute in [0, 1, 3] {
            assert!(refusals.is_due("denied", minutes(minute)));
        }
        assert!(!refusals.is_due("denied", minutes(4)));
        assert!(!refusals.is_due("other", minutes(3) + FIRST_DELAY / 2));
        assert!(refusals.is_due("other", minutes(4)));
        assert!(refusals.is_due("denied", minutes(5)));
        assert!(refusals.is_due("denied", minutes(6)));
        assert!(!refusals.is_due("denied", minutes(7)));
        refusals.ended();
        assert!(refusals.is_due("denied", minutes(7)));
    }
}
