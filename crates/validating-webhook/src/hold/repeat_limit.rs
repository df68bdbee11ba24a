//! Limits how often the controller of a workload repeats deletes that are held.
//!
//! A ReplicaSet controller deletes all surplus pods in each sync. It syncs again whenever one of its pods changes, but not
//! before all deletes of the previous sync are answered. So one late answer delays all of them. Without the limit a
//! rollout of some hundred pods consists of refused deletes for the most part. They use the requests that the API
//! server and the controller's own limit (`--kube-api-qps`) leave to others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The time for which one repeated delete counts: 20 each second are answered immediately.
const EACH: Duration = Duration::from_millis(50);
/// As many as are sent within this time are answered immediately when there was none before.
const BURST: Duration = Duration::from_secs(1);
/// The longest delay. A controller of the cluster syncs some workloads at a time, and this one waits meanwhile.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// The repeated deletes of each workload. Each replica of the webhook counts those that it answers.
#[derive(Default)]
pub(super) struct RepeatLimit {
    /// By UID of the workload.
    workloads: Mutex<HashMap<String, Repeats>>,
    stop: CancellationToken,
}

struct Repeats {
    /// The time at which the deletes so far count no longer.
    count_until: Instant,
    /// True while an answer is delayed. The others are not: one is sufficient.
    is_delayed: bool,
}

impl RepeatLimit {
    /// Returns a limit whose delays end when `stop` is cancelled.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Counts a repeated delete by the controller of the workload `uid` at `now`. Returns the delay of its answer, or
    /// `None` if it is answered immediately.
    pub(super) fn count(&self, uid: &str, now: Instant) -> Option<RepeatDelay<'_>> {
        let mut workloads = self.workloads.lock();
        workloads.retain(|_, repeats| repeats.is_delayed || repeats.count_until > now);
        let new = || Repeats { count_until: now, is_delayed: false };
        let repeats = workloads.entry(uid.to_owned()).or_insert_with(new);
        let count_until = repeats.count_until.max(now) + EACH;
        repeats.count_until = count_until.min(now + BURST + MAX_DELAY);
        let delay = repeats.count_until.saturating_duration_since(now + BURST);
        if delay.is_zero() || repeats.is_delayed {
            return None;
        }
        repeats.is_delayed = true;
        Some(RepeatDelay { limit: self, uid: uid.to_owned(), until: now + delay })
    }
}

/// The delay of one answer.
pub(super) struct RepeatDelay<'a> {
    limit: &'a RepeatLimit,
    uid: String,
    until: Instant,
}

impl RepeatDelay<'_> {
    /// Waits until the delay has passed, or `deadline`, or the process stops.
    pub(super) async fn pass(self, deadline: Instant) {
        tokio::select! {
            () = tokio::time::sleep_until(self.until.min(deadline).into()) => {}
            () = self.limit.stop.cancelled() => {}
        }
    }
}

impl Drop for RepeatDelay<'_> {
    fn drop(&mut self) {
        if let Some(repeats) = self.limit.workloads.lock().get_mut(&self.uid) {
            repeats.is_delayed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deletes `pods` pods in each sync, one sync after the other, for 10 s. Returns the number of syncs.
    fn syncs(limit: &RepeatLimit, uid: &str, pods: usize, start: Instant) -> usize {
        const SYNC: Duration = Duration::from_millis(100);
        let (mut now, mut syncs) = (start, 0);
        while now < start + Duration::from_secs(10) {
            let delays: Vec<RepeatDelay<'_>> = (0..pods).filter_map(|_| limit.count(uid, now)).collect();
            assert!(delays.len() <= 1, "one late answer is sufficient");
            now = delays.iter().map(|delay| delay.until).fold(now + SYNC, Instant::max);
            syncs += 1;
        }
        syncs
    }

    #[test]
    fn a_controller_sends_twenty_each_second() {
        let (limit, start) = (RepeatLimit::default(), Instant::now());
        assert_eq!(syncs(&limit, "one-pod", 1, start), 100, "nothing is delayed");
        let of_ten = syncs(&limit, "ten-pods", 10, start);
        assert!((20..=24).contains(&of_ten), "{of_ten}: 200 deletes and a burst");
        let of_many = syncs(&limit, "many-pods", 300, start);
        assert!((19..=21).contains(&of_many), "{of_many}: every second sync takes almost a second longer");
    }

    #[test]
    fn each_workload_has_its_own_limit_and_is_forgotten() {
        let (limit, start) = (RepeatLimit::default(), Instant::now());
        for _ in 0..20 {
            assert!(limit.count("a", start).is_none());
        }
        let delay = limit.count("a", start).unwrap();
        assert!(limit.count("a", start).is_none() && limit.count("b", start).is_none());
        let later = start + BURST + MAX_DELAY;
        drop(delay);
        assert!(limit.count("c", later).is_none());
        assert_eq!(limit.workloads.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_end_of_the_process_ends_a_delay() {
        let stop = CancellationToken::new();
        let limit = RepeatLimit::new(stop.clone());
        let far = Instant::now() + Duration::from_secs(600);
        let delay = (0..60).find_map(|_| limit.count("a", far)).unwrap();
        stop.cancel();
        delay.pass(far).await;
        assert!(limit.count("a", far).is_some(), "the next answer is delayed");
    }
}
