//! The rule sets whose status could not be written.

use std::collections::BTreeMap;
use std::time::Instant;

/// The rule sets whose status could not be written. Each is written again after growing delays. Meanwhile nothing is
/// granted to the pods that need room in its budgets, and the other rule sets of the namespace continue.
#[derive(Debug, Default)]
pub(crate) struct UnstoredStatuses {
    /// By name.
    by_set: BTreeMap<String, UnstoredStatus>,
}

#[derive(Debug)]
struct UnstoredStatus {
    uid: String,
    error: String,
    /// In a row.
    failures: u32,
    retry_at: Instant,
}

impl UnstoredStatuses {
    /// Notes that the status of the object `set` with this UID could not be written. `retry_at` returns the time of the
    /// next attempt after a number of failures in a row.
    pub(crate) fn failed(
        &mut self,
        set: &str,
        uid: &str,
        error: String,
        retry_at: impl FnOnce(u32) -> Instant,
    ) {
        let before = self.by_set.get(set).filter(|before| before.uid == uid);
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let status = UnstoredStatus { uid: uid.to_owned(), error, failures, retry_at: retry_at(failures) };
        self.by_set.insert(set.to_owned(), status);
    }

    /// Notes that the status of `set` is stored, or that the object is gone.
    pub(crate) fn remove(&mut self, set: &str) {
        self.by_set.remove(set);
    }

    /// Returns why the status of `set` is not stored; `None` if it is.
    pub(crate) fn error(&self, set: &str) -> Option<&str> {
        self.by_set.get(set).map(|status| status.error.as_str())
    }

    /// True if the status of the object `set` with this UID is not to be written at `now`.
    pub(crate) fn is_held(&self, set: &str, uid: &str, now: Instant) -> bool {
        self.by_set.get(set).is_some_and(|status| status.uid == uid && status.retry_at > now)
    }

    /// True if the last write of the status of the object `set` with this UID failed, and it is to be written at `now`.
    pub(crate) fn is_retried(&self, set: &str, uid: &str, now: Instant) -> bool {
        self.by_set.get(set).is_some_and(|status| status.uid == uid && status.retry_at <= now)
    }

    /// Returns the time of the next attempt after `now`; `None` if there is none.
    pub(crate) fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.by_set.values().map(|status| status.retry_at).filter(|at| *at > now).min()
    }

    /// Returns the rule sets to decide about again at `now`.
    pub(crate) fn due(&self, now: Instant) -> Vec<String> {
        let due = self.by_set.iter().filter(|(_, status)| status.retry_at <= now);
        due.map(|(set, _)| set.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_status_is_written_again_after_growing_delays() {
        let (begin, mut unstored) = (Instant::now(), UnstoredStatuses::default());
        let at = |seconds: u32| begin + Duration::from_secs(u64::from(seconds));
        unstored.failed("web", "1", "denied".to_owned(), at);
        unstored.failed("web", "1", "denied".to_owned(), at);
        assert_eq!((unstored.next_retry(begin), unstored.error("web")), (Some(at(2)), Some("denied")));
        assert_eq!(unstored.next_retry(at(2)), None, "it is due");
        assert!(unstored.is_held("web", "1", at(1)) && !unstored.is_held("web", "1", at(2)));
        assert!(!unstored.is_retried("web", "1", at(1)) && unstored.is_retried("web", "1", at(2)));
        assert!(!unstored.is_held("web", "2", at(1)), "it is another object");
        assert!(!unstored.is_retried("web", "2", at(2)), "it is another object");
        assert_eq!((unstored.due(at(1)), unstored.due(at(2))), (Vec::new(), vec!["web".to_owned()]));
        unstored.failed("web", "2", "denied".to_owned(), at);
        assert_eq!(unstored.next_retry(begin), Some(at(1)), "the failures of another object do not count");
        unstored.remove("web");
        assert_eq!((unstored.next_retry(begin), unstored.error("web")), (None, None));
    }
}
