//! How many pods may leave service at the same time.

use std::time::{Duration, Instant};

use crate::write::MAX_CONCURRENT_WRITES;

/// The limit is counted in parts, because one write changes it by less than one pod.
const PARTS: u32 = 100;
/// The limit of a new leader, which does not know yet how long writes take.
const FIRST: u32 = 4 * PARTS;
const SMALLEST: u32 = 2 * PARTS;
/// A write is slow if it takes more than this many times as long as a quick one.
const SLOW: u32 = 3;
/// A quick write may take longer by this part for each millisecond, which is a hundredth for each second. So the limit
/// follows an API server that becomes slower for good.
const DRIFT: u32 = 100_000;

/// A limit that follows the time of writes. It grows by one pod in as many quick writes as it allows at a time, and
/// shrinks by a tenth with each slow one.
pub(super) struct AdaptiveLimit {
    parts: u32,
    /// The time of a write while the API server has little to do, and when it was determined.
    quick: Option<(Duration, Instant)>,
}

impl AdaptiveLimit {
    pub(super) fn new() -> Self {
        AdaptiveLimit { parts: FIRST, quick: None }
    }

    /// Returns the number of pods.
    pub(super) fn pods(&self) -> usize {
        usize::try_from(self.parts / PARTS).unwrap_or(usize::MAX)
    }

    /// Adapts the limit to a write that ended at `now` and has taken `took`.
    pub(super) fn observe(&mut self, took: Duration, now: Instant) {
        let quick = self.quick.map_or(took, |(quick, at)| {
            let elapsed = now.saturating_duration_since(at).as_millis();
            let drift = quick.saturating_mul(u32::try_from(elapsed).unwrap_or(u32::MAX)) / DRIFT;
            quick.saturating_add(drift).min(took)
        });
        self.quick = Some((quick, now));
        // More writes would queue for a write slot.
        let largest = u32::from(MAX_CONCURRENT_WRITES) * PARTS;
        self.parts = if took > quick.saturating_mul(SLOW) {
            (self.parts - self.parts / 10).max(SMALLEST)
        } else {
            (self.parts + PARTS * PARTS / self.parts).min(largest)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(limit: &mut AdaptiveLimit, start: Instant, writes: u64, took: Duration) {
        for number in 0..writes {
            limit.observe(took, start + Duration::from_millis(100 * number));
        }
    }

    #[test]
    fn the_limit_follows_the_time_of_writes() {
        let (mut limit, start) = (AdaptiveLimit::new(), Instant::now());
        assert_eq!(limit.pods(), 4);
        observe(&mut limit, start, 20, Duration::from_millis(5));
        assert_eq!(limit.pods(), 7);
        observe(&mut limit, start, 20, Duration::from_millis(16));
        assert_eq!(limit.pods(), 2);
        observe(&mut limit, start, 10, Duration::from_millis(14));
        assert_eq!(limit.pods(), 4);
        observe(&mut limit, start, 1000, Duration::from_millis(4));
        assert_eq!(limit.pods(), 32);
    }

    #[test]
    fn an_api_server_that_becomes_slower_for_good_is_the_usual_one_after_minutes() {
        let (mut limit, start) = (AdaptiveLimit::new(), Instant::now());
        limit.observe(Duration::from_millis(5), start);
        let slow = Duration::from_millis(50);
        observe(&mut limit, start, 600, slow);
        assert_eq!(limit.pods(), 2);
        observe(&mut limit, start + Duration::from_secs(60), 1800, slow);
        assert!(limit.pods() > 20);
    }
}
