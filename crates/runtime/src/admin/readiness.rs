//! Named conditions that must all hold before traffic comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A set of conditions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<Vec<Condition>>>,
}

impl Readiness {
    /// Adds a condition, which doesn't hold yet. Add all of them before serving.
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { name, holds: Arc::default() };
        self.conditions.lock().push(condition.clone());
        condition
    }

    /// The names of the conditions that don't hold.
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

/// One condition of a [`Readiness`], or by default of none. Clones are the same condition.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    name: &'static str,
    holds: Arc<AtomicBool>,
}

impl Condition {
    /// Says whether it holds; tells whether that is news.
    pub fn set(&self, holds: bool) -> bool {
        self.holds.swap(holds, Ordering::Relaxed) != holds
    }

    /// Whether it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }
}
