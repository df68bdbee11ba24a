//! Whether this replica is known to hold its slot.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a renewal counts. It is less than the time after which others take over, with time for calls under way.
const TERM: Duration = Duration::from_secs(9);

/// Whether this replica is known to hold its slot. If not, another one may be responsible for its bindings by now, and know
/// newer versions of their pods.
#[derive(Debug, Default)]
pub(crate) struct Tenure(Mutex<Option<Instant>>);

impl Tenure {
    /// Records a renewal whose request was sent at `begin`.
    pub(crate) fn confirm(&self, begin: Instant) {
        *self.0.lock() = Some(begin);
    }

    /// Returns whether the last renewal counts.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.0.lock().is_some_and(|begin| begin.elapsed() < TERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_counts_for_less_than_the_expiry() {
        let tenure = Tenure::default();
        assert!(!tenure.is_confirmed());
        tenure.confirm(Instant::now());
        assert!(tenure.is_confirmed());
        let before = Instant::now().checked_sub(TERM).unwrap();
        tenure.confirm(before);
        assert!(!tenure.is_confirmed());
        assert!(TERM < crate::model::EXPIRY);
    }
}
