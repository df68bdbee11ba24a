//! Tasks that have ended, as the status of a rule contains them.

use podward_api::pod_transition_rule::TaskInfo;
use podward_core::UnixNanos;

use super::task::{nanos, time};

/// A task is kept for this time after its end, as by KusionStack, in nanoseconds.
const KEPT: i64 = 600_000_000_000;
const MAX_TASKS: usize = 16;
/// The largest number of pod names in all tasks together.
const MAX_NAMES: usize = 256;

/// Tasks that have ended, the latest last.
#[derive(Debug, Default)]
pub(super) struct TaskHistory(Vec<TaskInfo>);

impl TaskHistory {
    /// Continues from the stored history.
    pub(super) fn resume(&mut self, stored: Vec<TaskInfo>, now: UnixNanos) {
        self.0 = stored;
        self.trim(now);
    }

    /// Adds a task that has ended. The keys of its check requests are dropped: only running tasks need them.
    pub(super) fn add(&mut self, mut task: TaskInfo, now: UnixNanos) {
        task.requests.clear();
        task.last_time.get_or_insert_with(|| time(now));
        self.0.push(task);
        self.trim(now);
    }

    /// Returns the tasks that are kept at `now`.
    pub(super) fn list(&mut self, now: UnixNanos) -> Vec<TaskInfo> {
        self.trim(now);
        self.0.clone()
    }

    fn trim(&mut self, now: UnixNanos) {
        let is_young = |task: &TaskInfo| {
            task.last_time.as_ref().is_some_and(|last| now.0.saturating_sub(nanos(last).0) < KEPT)
        };
        self.0.retain(is_young);
        self.0.drain(..self.0.len().saturating_sub(MAX_TASKS));
        let mut left = MAX_NAMES;
        for task in self.0.iter_mut().rev() {
            for names in [&mut task.approved, &mut task.processing] {
                names.truncate(left);
                left -= names.len();
            }
        }
    }
}
