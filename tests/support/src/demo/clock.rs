//! The progress messages of the demo.

use std::time::Instant;

/// Prints what is being done, and when.
pub(super) struct DemoClock(pub(super) Instant);

impl DemoClock {
    pub(super) fn say(&self, what: &str) {
        println!("[{:6.1} s] {what}", self.0.elapsed().as_secs_f64());
    }
}
