//! The state that is kept between calls: the progress of questions, and the pods that are being drained.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_core::UnixNanos;

use crate::clock::after;
use crate::verdict::PrepareProgress;

/// The progress of a question is dropped when the question is not asked again for this long.
const QUESTION_TTL: Duration = Duration::from_secs(600);
/// How long a pod counts as draining after PRE_CHECK, unless PREPARE follows.
const CHECKED_TTL: Duration = Duration::from_secs(60);
/// How long a pod counts as draining after PREPARE, unless COMPLETE follows or the slices show the pod as ready again.
const DRAINED_TTL: Duration = Duration::from_secs(3600);
/// The maximum number of entries of each kind. The oldest entries are dropped to make room; their waits start again.
const MAX_ENTRIES: usize = 20_000;

/// The progress of questions by question ID, and the draining pods by UID.
#[derive(Debug, Default)]
pub(crate) struct DrainTracker {
    questions: Mutex<HashMap<String, (PrepareProgress, UnixNanos)>>,
    /// When PRE_CHECK questions were first asked, as this process knows, by question ID.
    checks: Mutex<HashMap<String, (UnixNanos, UnixNanos)>>,
    draining: Mutex<HashMap<Arc<str>, Draining>>,
}

/// How long a pod counts as draining.
#[derive(Clone, Copy, Debug)]
struct Draining {
    /// Until then it counts whatever the slices show.
    checked_until: UnixNanos,
    /// Until then it counts unless the slices show it as ready.
    drained_until: UnixNanos,
}

impl DrainTracker {
    /// Calls `work` with the progress of a question.
    pub(crate) fn with_progress<T>(
        &self,
        id: &str,
        now: UnixNanos,
        work: impl FnOnce(&mut PrepareProgress) -> T,
    ) -> T {
        let mut questions = self.questions.lock();
        if !questions.contains_key(id) {
            make_room(&mut questions, now, |(_, until)| *until);
        }
        let (progress, until) =
            questions.entry(id.to_owned()).or_insert_with(|| (PrepareProgress::default(), now));
        *until = after(now, QUESTION_TTL);
        work(progress)
    }

    /// Returns the time from which the wait of a PRE_CHECK question counts. `asked_at` is by the clock of the caller,
    /// which may be wrong: if it is later than this process has first seen the question, that time counts.
    pub(crate) fn check_start(&self, id: &str, asked_at: Option<UnixNanos>, now: UnixNanos) -> UnixNanos {
        let mut checks = self.checks.lock();
        if !checks.contains_key(id) {
            make_room(&mut checks, now, |(_, until)| *until);
        }
        let (first, until) = checks.entry(id.to_owned()).or_insert((now, now));
        *until = after(now, QUESTION_TTL);
        asked_at.map_or(*first, |asked_at| asked_at.min(*first))
    }

    /// Drops the progress of a question that is answered.
    pub(crate) fn remove_question(&self, id: &str) {
        self.questions.lock().remove(id);
        self.checks.lock().remove(id);
    }

    /// Records that an operation on the pod may start: the pod may be drained soon.
    pub(crate) fn mark_checked(&self, uid: &Arc<str>, now: UnixNanos) {
        self.mark(uid, now, |draining| draining.checked_until = after(now, CHECKED_TTL));
    }

    /// Records that the pod is drained.
    pub(crate) fn mark_drained(&self, uid: &Arc<str>, now: UnixNanos) {
        self.mark(uid, now, |draining| draining.drained_until = after(now, DRAINED_TTL));
    }

    /// Records that the pod is being added to traffic again.
    pub(crate) fn mark_added(&self, uid: &Arc<str>) {
        self.draining.lock().remove(uid);
    }

    /// Returns true if the pod is drained, or may be drained soon. `is_ready` says whether the slices show it as ready:
    /// then it has been added to traffic again, perhaps by another replica of this process.
    pub(crate) fn is_draining(&self, uid: &Arc<str>, is_ready: bool, now: UnixNanos) -> bool {
        self.draining.lock().get(uid).is_some_and(|draining| {
            draining.checked_until > now || (!is_ready && draining.drained_until > now)
        })
    }

    fn mark(&self, uid: &Arc<str>, now: UnixNanos, set: impl FnOnce(&mut Draining)) {
        let mut draining = self.draining.lock();
        if !draining.contains_key(uid) {
            make_room(&mut draining, now, |draining| draining.checked_until.max(draining.drained_until));
        }
        set(draining.entry(Arc::clone(uid)).or_insert(Draining { checked_until: now, drained_until: now }));
    }
}

/// Removes entries if necessary, so that one more fits.
fn make_room<K: Clone + Eq + std::hash::Hash, V>(
    entries: &mut HashMap<K, V>,
    now: UnixNanos,
    until: impl Fn(&V) -> UnixNanos,
) {
    if entries.len() < MAX_ENTRIES {
        return;
    }
    entries.retain(|_, entry| until(entry) > now);
    if entries.len() >= MAX_ENTRIES {
        let mut ends: Vec<UnixNanos> = entries.values().map(&until).collect();
        let (_, middle, _) = ends.select_nth_unstable(MAX_ENTRIES / 10);
        let middle = *middle;
        entries.retain(|_, entry| until(entry) > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_entries_is_bounded() {
        let tracker = DrainTracker::default();
        for number in 0..MAX_ENTRIES + 10 {
            tracker.with_progress(&number.to_string(), UnixNanos(number as i64), |_| ());
            tracker.check_start(&number.to_string(), None, UnixNanos(number as i64));
            tracker.mark_drained(&number.to_string().into(), UnixNanos(number as i64));
        }
        assert!(
            tracker.questions.lock().len() <= MAX_ENTRIES && tracker.draining.lock().len() <= MAX_ENTRIES
        );
        assert!(tracker.checks.lock().len() <= MAX_ENTRIES);
        assert!(tracker.questions.lock().contains_key(&(MAX_ENTRIES + 9).to_string()));
    }

    #[test]
    fn the_wait_of_a_check_is_not_extended_by_the_clock_of_the_caller() {
        let tracker = DrainTracker::default();
        let at = |seconds: i64| UnixNanos(seconds * 1_000_000_000);
        assert_eq!(tracker.check_start("ahead", Some(at(4000)), at(100)), at(100));
        assert_eq!(tracker.check_start("ahead", Some(at(4000)), at(150)), at(100), "the first time counts");
        assert_eq!(tracker.check_start("unknown", None, at(200)), at(200));
        assert_eq!(tracker.check_start("unknown", None, at(210)), at(200));
        let restarted = tracker.check_start("older", Some(at(50)), at(100));
        assert_eq!(restarted, at(50), "this process may have started later");
        tracker.remove_question("ahead");
        assert_eq!(tracker.check_start("ahead", Some(at(4000)), at(300)), at(300));
    }

    #[test]
    fn a_pod_is_draining_until_it_is_added_again_or_the_time_is_over() {
        let (tracker, uid): (_, Arc<str>) = (DrainTracker::default(), "u".into());
        let at = |seconds: i64| UnixNanos(seconds * 1_000_000_000);
        tracker.mark_checked(&uid, at(0));
        assert!(tracker.is_draining(&uid, true, at(59)) && !tracker.is_draining(&uid, true, at(61)));
        tracker.mark_drained(&uid, at(30));
        tracker.mark_checked(&uid, at(31));
        assert!(tracker.is_draining(&uid, false, at(3000)), "the longer time counts");
        tracker.mark_added(&uid);
        assert!(!tracker.is_draining(&uid, false, at(31)));
    }
}
