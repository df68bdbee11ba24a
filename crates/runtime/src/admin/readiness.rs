//! Named conditions that must all be true before the process is ready.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::progress::Progress;

/// The conditions of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<Vec<ReadinessCondition>>>,
    progress: Arc<Mutex<Vec<Progress>>>,
    changed: Arc<Notify>,
}

impl Readiness {
    /// Adds a condition, which is false at first. Add all conditions before serving.
    pub fn condition(&self, name: &'static str) -> ReadinessCondition {
        let condition = ReadinessCondition { name, holds: Arc::default(), changed: self.changed.clone() };
        self.conditions.lock().push(condition.clone());
        condition
    }

    /// Returns conditions to which others can be added without being added to these.
    #[must_use]
    pub fn extended(&self) -> Self {
        let conditions = Arc::new(Mutex::new(self.conditions.lock().clone()));
        Self { conditions, ..self.clone() }
    }

    /// Makes the liveness of the process depend on `progress`.
    pub fn depend_on(&self, progress: Progress) {
        self.progress.lock().push(progress);
    }

    /// Returns for how long the process has made no progress, if it is stalled.
    #[must_use]
    pub fn stalled_for(&self) -> Option<Duration> {
        self.progress.lock().iter().filter_map(Progress::stalled_for).max()
    }

    /// Returns the names of the conditions that are false.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.conditions
            .lock()
            .iter()
            .filter(|condition| !condition.holds())
            .map(|condition| condition.name)
            .collect()
    }

    /// Waits until all conditions are true.
    pub async fn met(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on, no change is missed.
            changed.as_mut().enable();
            if self.missing().is_empty() {
                return;
            }
            changed.await;
        }
    }
}

/// A condition of a [`Readiness`]; the default belongs to none. Clones share its value.
#[derive(Clone, Debug, Default)]
pub struct ReadinessCondition {
    name: &'static str,
    holds: Arc<AtomicBool>,
    changed: Arc<Notify>,
}

impl ReadinessCondition {
    /// Sets the value. Returns true if it changes.
    pub fn set(&self, holds: bool) -> bool {
        let changes = self.holds.swap(holds, Ordering::SeqCst) != holds;
        if changes {
            self.changed.notify_waiters();
        }
        changes
    }

    /// True if the condition holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_change_ends_the_wait() {
        let readiness = Readiness::default();
        let (one, other) = (readiness.condition("one"), readiness.condition("other"));
        one.set(true);
        let mut met = pin!(readiness.met());
        assert!(met.as_mut().now_or_never().is_none());
        other.set(true);
        met.await;
        one.set(false);
        assert!(readiness.met().now_or_never().is_none());
    }

    #[tokio::test]
    async fn an_extension_has_conditions_of_its_own() {
        let lists = Readiness::default();
        let pods = lists.condition("pods");
        let all = lists.extended();
        let tls = all.condition("tls");
        assert_eq!((lists.missing(), all.missing()), (vec!["pods"], vec!["pods", "tls"]));
        pods.set(true);
        assert_eq!((lists.missing(), all.missing()), (vec![], vec!["tls"]));
        let mut met = pin!(all.met());
        assert!(met.as_mut().now_or_never().is_none());
        tls.set(true);
        met.await;
    }
}
