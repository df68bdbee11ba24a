//! What this replica may ask of a registry.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use podward_api::registry_connection::RegistryLimits;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Changes that were not made within this time may be made at once.
const BURST: Duration = Duration::from_millis(200);

/// Limits the calls and the changes of one registry. Callers are served in the order in which they ask, so that a binding
/// with many changes does not keep others waiting for longer than its current step.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: RegistryLimits,
    calls: Semaphore,
    /// The calls that may be reads: one fewer. A read may wait long for its answer, and changes and heartbeats must not.
    reads: Semaphore,
    pace: Mutex<Pace>,
}

impl Limiter {
    fn new(limits: RegistryLimits) -> Self {
        Self {
            limits,
            calls: Semaphore::new(limits.concurrent_calls as usize),
            reads: Semaphore::new(limits.concurrent_calls.saturating_sub(1).max(1) as usize),
            pace: Mutex::new(Pace::new(limits.changes_per_second, Instant::now())),
        }
    }

    /// Waits until one more call may be made. It counts until the permit is dropped.
    pub(super) async fn call(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.calls.acquire().await.ok()
    }

    /// Waits until one more read may be made. It counts until the permits are dropped.
    pub(super) async fn read(&self) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        Some((self.reads.acquire().await.ok()?, self.call().await?))
    }

    /// Waits until `count` more changes may be made.
    pub(super) async fn changes(&self, count: usize) {
        let at = self.pace.lock().reserve(count, Instant::now());
        tokio::time::sleep_until(at).await;
    }
}

/// When changes may be made, so that there are not too many per second.
#[derive(Debug)]
struct Pace {
    /// The time that one change takes.
    each: Duration,
    /// When the time of all changes that were allowed has passed.
    free: Instant,
}

impl Pace {
    fn new(per_second: u32, now: Instant) -> Self {
        Self { each: Duration::from_secs(1) / per_second.max(1), free: now }
    }

    /// Returns when the next `count` changes may be made.
    fn reserve(&mut self, count: usize, now: Instant) -> Instant {
        let begin = self.free.max(now.checked_sub(BURST).unwrap_or(now));
        self.free = begin + self.each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        begin.max(now)
    }
}

/// The limiters of the registries in use. Bindings of the same ClusterRegistry share one.
#[derive(Debug, Default)]
pub(crate) struct Limiters(Mutex<HashMap<String, Weak<Limiter>>>);

impl Limiters {
    /// Returns the limiter of the registry `name`, a new one if there is none or the limits have changed.
    pub(crate) fn of(&self, name: &str, limits: RegistryLimits) -> Arc<Limiter> {
        let mut all = self.0.lock();
        all.retain(|_, limiter| limiter.strong_count() > 0);
        let known = all.get(name).and_then(Weak::upgrade).filter(|limiter| limiter.limits == limits);
        known.unwrap_or_else(|| {
            let limiter = Arc::new(Limiter::new(limits));
            all.insert(name.to_owned(), Arc::downgrade(&limiter));
            limiter
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In no window there are more changes than its length allows, except one burst and the last reservation.
        #[test]
        fn the_rate_is_never_exceeded(
            rate in 1_u32..2000, steps in prop::collection::vec((1_usize..100, 0_u64..500), 1..60)
        ) {
            let start = Instant::now();
            let mut pace = Pace::new(rate, start);
            let mut now = start;
            let mut made: Vec<(Instant, usize)> = Vec::new();
            for (count, pause) in steps {
                now += Duration::from_millis(pause);
                let at = pace.reserve(count, now);
                prop_assert!(at >= now && made.last().is_none_or(|(before, _)| *before <= at), "out of order");
                made.push((at, count));
            }
            for first in 0..made.len() {
                let mut before = 0_u32;
                for (at, count) in &made[first..] {
                    let window = (*at - made[first].0) + BURST;
                    prop_assert!(pace.each * before <= window, "{before} in {window:?}");
                    before += u32::try_from(*count).unwrap();
                }
            }
        }
    }

    #[test]
    fn what_was_not_used_is_kept_for_a_moment_only() {
        let start = Instant::now();
        let mut pace = Pace::new(1000, start);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.reserve(200, later), later);
        assert_eq!(pace.reserve(100, later), later);
        assert_eq!(pace.reserve(1, later), later + Duration::from_millis(100));
    }

    #[test]
    fn reads_leave_a_call_for_changes() {
        for (concurrent_calls, most, is_left) in [(1, 1, false), (2, 1, true), (3, 2, true)] {
            let limiter = Limiter::new(RegistryLimits { concurrent_calls, ..RegistryLimits::default() });
            let reads: Vec<_> = (0..4).filter_map(|_| limiter.read().now_or_never()).collect();
            assert_eq!(reads.len(), most, "{concurrent_calls}");
            assert_eq!(limiter.call().now_or_never().is_some(), is_left, "{concurrent_calls}");
            drop(reads);
            assert!(limiter.read().now_or_never().is_some(), "{concurrent_calls}");
        }
    }

    #[test]
    fn bindings_of_a_registry_share_its_limits() {
        let limiters = Limiters::default();
        let limits = RegistryLimits::default();
        let first = limiters.of("ClusterRegistry corp", limits);
        assert!(Arc::ptr_eq(&first, &limiters.of("ClusterRegistry corp", limits)));
        assert!(!Arc::ptr_eq(&first, &limiters.of("DiscoveryBinding a/b", limits)));
        let other = RegistryLimits { concurrent_calls: 1, ..limits };
        assert!(!Arc::ptr_eq(&first, &limiters.of("ClusterRegistry corp", other)));
    }
}
