//! When the watch of the Leases is started again although it has reported no error.

use std::time::Duration;

/// How long what has to come may take: the event after a write, and the list of a watch that was started.
const PATIENCE: Duration = Duration::from_secs(4);

/// What shows whether the watch works. A connection whose other end has vanished reports nothing, neither changes nor
/// errors. But a watch that works reports what this replica writes.
#[derive(Debug, Default)]
pub(super) struct WatchProgress {
    /// When the watch was started.
    started: Duration,
    /// When it reported something last.
    reported: Duration,
    /// When the first write began after which it has reported nothing.
    written: Option<Duration>,
}

impl WatchProgress {
    /// Records that the watch was started.
    pub(super) fn started(&mut self, now: Duration) {
        (self.started, self.written) = (now, None);
    }

    /// Records that the watch has reported something.
    pub(super) fn reported(&mut self, now: Duration) {
        (self.reported, self.written) = (now, None);
    }

    /// Records that this replica has written its Lease, with a request that was sent at `begin`.
    pub(super) fn wrote(&mut self, begin: Duration) {
        if self.reported < begin {
            self.written.get_or_insert(begin);
        }
    }

    /// Returns whether the watch is to be started again: it does not report what was written, or only a new list can show
    /// something that is wanted.
    pub(super) fn is_overdue(&self, wants_list: bool, now: Duration) -> bool {
        let waits = |since: Duration| now.saturating_sub(since) >= PATIENCE;
        waits(self.started) && (wants_list || self.written.is_some_and(waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_watch_that_does_not_report_a_write_is_started_again() {
        let mut progress = WatchProgress::default();
        progress.wrote(at(1000));
        progress.reported(at(1010));
        assert!(!progress.is_overdue(false, at(60_000)), "nothing was written since");
        progress.wrote(at(5000));
        progress.wrote(at(9000));
        assert!(!progress.is_overdue(false, at(8999)) && progress.is_overdue(false, at(9000)));
        progress.started(at(9000));
        assert!(!progress.is_overdue(false, at(60_000)));
        progress.wrote(at(13_000));
        assert!(progress.is_overdue(false, at(17_000)));
    }

    #[test]
    fn an_event_may_come_before_the_response() {
        let mut progress = WatchProgress::default();
        progress.reported(at(1005));
        progress.wrote(at(1000));
        assert!(!progress.is_overdue(false, at(60_000)));
    }

    #[test]
    fn a_list_that_does_not_come_is_asked_for_again() {
        let mut progress = WatchProgress::default();
        assert!(progress.is_overdue(true, at(12_000)));
        progress.started(at(12_000));
        assert!(!progress.is_overdue(true, at(15_999)) && progress.is_overdue(true, at(16_000)));
    }
}
