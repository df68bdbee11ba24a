//! Identities that new pods cannot get, because pods that the set does not control have their names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// After this time, it is tried again whether the name is free.
const RETRY: Duration = Duration::from_secs(300);

/// The identities, and when the API server refused their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignNames {
    ids: BTreeMap<String, Instant>,
}

impl ForeignNames {
    /// Adds the identity of a name that was refused.
    pub(crate) fn add(&mut self, id: &str, now: Instant) {
        self.ids.insert(id.to_owned(), now);
    }

    /// Removes these identities from those with claims that no pod of the set has. Forgets the others, and those that were
    /// refused long ago.
    pub(crate) fn remove_from(&mut self, free: &mut BTreeSet<String>, now: Instant) {
        self.ids.retain(|id, since| free.contains(id) && now.duration_since(*since) < RETRY);
        free.retain(|id| !self.ids.contains_key(id));
    }

    /// Returns the time after which the first of the names is tried again. `None` if there is none.
    pub(crate) fn next_retry(&self, now: Instant) -> Option<Duration> {
        self.ids.values().map(|since| RETRY.saturating_sub(now.duration_since(*since))).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_tried_again_after_some_minutes() {
        let now = Instant::now();
        let mut names = ForeignNames::default();
        assert_eq!(names.next_retry(now), None);
        names.add("aaaaa", now);
        names.add("bbbbb", now + RETRY / 2);
        assert_eq!(names.next_retry(now + RETRY / 2), Some(RETRY / 2));
        let mut left = |after: Duration| {
            let mut free = ["aaaaa", "bbbbb", "ccccc"].map(str::to_owned).into();
            names.remove_from(&mut free, now + after);
            free.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(left(RETRY / 2), ["ccccc"]);
        assert_eq!(left(RETRY), ["aaaaa", "ccccc"]);
    }
}
