//! Whether a process makes progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The limit of a leader: no piece of its work takes longer, because each request has a timeout.
pub const STALL_LIMIT: Duration = Duration::from_secs(90);

/// Counts the pieces of work of a process. The process is stalled if work is in progress and nothing has ended for a
/// limit. Clones share the state.
#[derive(Clone, Debug)]
pub struct Progress {
    limit: Duration,
    state: Arc<Mutex<ProgressState>>,
}

#[derive(Debug)]
struct ProgressState {
    running: usize,
    /// When the last piece ended, or when work began after a pause.
    at: Instant,
}

impl Progress {
    /// Returns the progress of a process without work. It is stalled if work is in progress and no piece of it has
    /// ended for longer than `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, state: Arc::new(Mutex::new(ProgressState { running: 0, at: Instant::now() })) }
    }

    /// Begins a piece of work. It ends when the returned value is dropped.
    #[must_use = "the work ends when the value is dropped"]
    pub fn begin(&self) -> RunningWork {
        self.state.lock().begin(Instant::now());
        RunningWork(self.clone())
    }

    /// Returns for how long nothing has ended, if that is longer than the limit.
    #[must_use]
    pub fn stalled_for(&self) -> Option<Duration> {
        self.state.lock().lasts_for(Instant::now()).filter(|since| *since > self.limit)
    }
}

impl ProgressState {
    fn begin(&mut self, now: Instant) {
        if self.running == 0 {
            self.at = now;
        }
        self.running += 1;
    }

    fn end(&mut self, now: Instant) {
        self.running = self.running.saturating_sub(1);
        self.at = now;
    }

    /// Returns for how long nothing has ended, if work is in progress.
    fn lasts_for(&self, now: Instant) -> Option<Duration> {
        (self.running > 0).then(|| now.saturating_duration_since(self.at))
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new(STALL_LIMIT)
    }
}

/// A piece of work in progress.
#[derive(Debug)]
pub struct RunningWork(Progress);

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.0.state.lock().end(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_only_while_work_is_in_progress() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut state = ProgressState { running: 0, at: start };
        assert_eq!(state.lasts_for(at(60)), None, "idle");
        state.begin(at(60));
        assert_eq!(state.lasts_for(at(70)), Some(Duration::from_secs(10)), "not since the start");
        state.begin(at(70));
        state.end(at(75));
        assert_eq!(state.lasts_for(at(80)), Some(Duration::from_secs(5)), "other work ends");
        state.end(at(90));
        assert_eq!(state.lasts_for(at(200)), None, "idle again");
    }
}
