//! Statistics of the latest calls to a hook.

use std::time::Duration;

use jiff::Timestamp;

/// The number of calls that latencies are computed from.
const WINDOW: usize = 256;

/// The statistics of one hook.
#[derive(Debug, Default)]
pub(crate) struct CallStats {
    milliseconds: Vec<u32>,
    next: usize,
    pub(crate) last_answer: Option<Timestamp>,
    /// The last error since the last answer.
    pub(crate) last_error: Option<String>,
}

impl CallStats {
    /// Records an answer that took `took`.
    pub(crate) fn answered(&mut self, took: Duration) {
        let took = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        match self.milliseconds.get_mut(self.next) {
            Some(oldest) => *oldest = took,
            None => self.milliseconds.push(took),
        }
        self.next = (self.next + 1) % WINDOW;
        self.last_answer = Some(Timestamp::now());
        self.last_error = None;
    }

    /// Returns p50 and p99 in milliseconds; `None` if there was no call.
    pub(crate) fn latencies(&self) -> Option<(u32, u32)> {
        let mut sorted = self.milliseconds.clone();
        sorted.sort_unstable();
        let at = |percent: usize| {
            // The nearest rank.
            sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied()
        };
        at(50).zip(at(99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_the_latest_calls() {
        let mut stats = CallStats::default();
        assert_eq!(stats.latencies(), None);
        stats.answered(Duration::from_millis(7));
        assert_eq!(stats.latencies(), Some((7, 7)));
        for took in 0..1000 {
            stats.answered(Duration::from_millis(took));
        }
        // The latest 256 are 744 to 999.
        assert_eq!(stats.latencies(), Some((871, 997)));
    }
}
