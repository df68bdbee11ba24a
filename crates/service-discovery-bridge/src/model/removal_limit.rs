//! How many instances may be removed at once without a reason on record.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use podward_registries::ServiceKey;

/// Removals within this time count together.
const WINDOW: Duration = Duration::from_secs(60);

/// Counts the removals of each service that have no reason on record.
#[derive(Debug, Default)]
pub(crate) struct RemovalLimit {
    recent: HashMap<ServiceKey, VecDeque<(Duration, usize)>>,
}

impl RemovalLimit {
    /// Returns whether `count` of the `total` instances of a service may be removed at `now`, and records them if so.
    /// All of them are allowed or none. One instance may always be removed within the window.
    pub(crate) fn allow(
        &mut self,
        service: &ServiceKey,
        total: usize,
        percent: u32,
        count: usize,
        now: Duration,
    ) -> bool {
        let recent = self.recent.entry(service.clone()).or_default();
        while recent.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            recent.pop_front();
        }
        let removed: usize = recent.iter().map(|(_, count)| count).sum();
        // What is gone already counted once.
        let before = total.saturating_add(removed);
        let most = (before.saturating_mul(percent as usize) / 100).max(1);
        let allowed = removed.saturating_add(count) <= most;
        if allowed && count > 0 {
            recent.push_back((now, count));
        }
        if recent.is_empty() {
            self.recent.remove(service);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Within a window never more than the share is removed, but one always may be.
        #[test]
        fn the_share_is_never_exceeded(
            total in 1_usize..200, percent in 1_u32..=100, steps in prop::collection::vec((1_usize..50, 0_u64..30), 1..20)
        ) {
            let service = ServiceKey::default();
            let mut limit = RemovalLimit::default();
            let (mut left, mut now, mut done) = (total, 0, Vec::new());
            for (count, pause) in steps {
                now += pause;
                let count = count.min(left);
                if count > 0 && limit.allow(&service, left, percent, count, Duration::from_secs(now)) {
                    left -= count;
                    done.push((now, count));
                }
                let within: usize = done.iter().filter(|(at, _)| now - at < 60).map(|(_, count)| count).sum();
                let before = left + within;
                prop_assert!(within <= (before * percent as usize / 100).max(1), "{done:?} of {before}");
            }
        }
    }

    #[test]
    fn one_instance_may_always_be_removed() {
        let mut limit = RemovalLimit::default();
        let service = ServiceKey::default();
        assert!(limit.allow(&service, 1, 1, 1, Duration::ZERO));
        assert!(!limit.allow(&service, 1, 1, 1, Duration::from_secs(59)));
        assert!(limit.allow(&service, 1, 1, 1, Duration::from_secs(60)));
        assert!(!limit.allow(&service, 10, 30, 4, Duration::from_secs(200)));
        assert!(limit.allow(&service, 10, 30, 3, Duration::from_secs(200)));
    }
}
