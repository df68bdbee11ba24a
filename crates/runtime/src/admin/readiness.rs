//! Named conditions that must all be true before the process is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::progress::Progress;

/// The conditions of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<Vec<ReadinessCondition>>>,
    progress: Arc<Mutex<Vec<Progress>>>,
}

impl Readiness {
    /// Adds a condition, which is false at first. Add all conditions before serving.
    pub fn condition(&self, name: &'static str) -> ReadinessCondition {
        let condition = ReadinessCondition { name, holds: Arc::default() };
        self.conditions.lock().push(condition.clone());
        condition
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
}

/// A condition of a [`Readiness`]; the default belongs to none. Clones share its value.
#[derive(Clone, Debug, Default)]
pub struct ReadinessCondition {
    name: &'static str,
    holds: Arc<AtomicBool>,
}

impl ReadinessCondition {
    /// Sets the value. Returns true if it changes.
    pub fn set(&self, holds: bool) -> bool {
        self.holds.swap(holds, Ordering::Relaxed) != holds
    }

    /// True if the condition holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }
}
