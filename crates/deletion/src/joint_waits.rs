//! What the leader remembers of pods that wait for each other, besides what is stored on them.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use parking_lot::Mutex;

use crate::step::BUDGET_RECHECK_DELAY;

/// Pods by UID. If the leader ends, an event is repeated, and the controller
/// of the workload may look a minute later.
#[derive(Debug, Default)]
pub(crate) struct JointWaits {
    /// The pods about which an event was sent, and when.
    told: Mutex<HashMap<String, Instant>>,
    /// The pods that are written once more when all of them may be deleted.
    turns: Mutex<HashSet<String>>,
}

impl JointWaits {
    /// Returns whether an event about the pod was sent a short while before `now`. If not, one is to be sent.
    pub(crate) fn is_told(&self, uid: &str, now: Instant) -> bool {
        let mut told = self.told.lock();
        if told.get(uid).is_some_and(|sent| now.saturating_duration_since(*sent) < BUDGET_RECHECK_DELAY) {
            return true;
        }
        told.insert(uid.to_owned(), now);
        false
    }

    /// The pod is written once more when all of them may be deleted.
    pub(crate) fn takes_turn_later(&self, uid: &str) {
        self.turns.lock().insert(uid.to_owned());
    }

    /// Returns whether the pod is to be written once more, for the first caller.
    pub(crate) fn takes_turn(&self, uid: &str) -> bool {
        self.turns.lock().remove(uid)
    }

    /// Forgets the pod, which is being deleted or does not wait any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.told.lock().remove(uid);
        self.turns.lock().remove(uid);
    }
}
