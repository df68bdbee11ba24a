//! Tasks that have ended, as the status of a rule has them.

use podward_api::pod_transition_rule::TaskInfo;
use podward_core::UnixNanos;

use super::task::{nanos, time};

/// How long they are kept, as by KusionStack.
const KEPT: i64 = 600_000_000_000;
/// How many are kept at most.
const MOST: usize = 16;
/// How many names of pods they have at most, all together.
const MOST_NAMES: usize = 256;

/// Tasks that have ended, the latest last.
#[derive(Debug, Default)]
pub(super) struct History(Vec<TaskInfo>);

impl History {
    /// Goes on from what is on record.
    pub(super) fn resume(&mut self, stored: Vec<TaskInfo>, now: UnixNanos) {
        self.0 = stored;
        self.trim(now);
    }

    /// A task has ended. Nobody will ask any more for whom its pods were asked.
    pub(super) fn add(&mut self, mut task: TaskInfo, now: UnixNanos) {
        task.askings.clear();
        task.last_time.get_or_insert_with(|| time(now));
        self.0.push(task);
        self.trim(now);
    }

    /// Those that are kept now.
    pub(super) fn list(&mut self, now: UnixNanos) -> Vec<TaskInfo> {
        self.trim(now);
        self.0.clone()
    }

    fn trim(&mut self, now: UnixNanos) {
        let is_young = |task: &TaskInfo| {
            task.last_time.as_ref().is_some_and(|last| now.0.saturating_sub(nanos(last).0) < KEPT)
        };
        self.0.retain(is_young);
        self.0.drain(..self.0.len().saturating_sub(MOST));
        let mut room = MOST_NAMES;
        for task in self.0.iter_mut().rev() {
            for names in [&mut task.approved, &mut task.processing] {
                names.truncate(room);
                room -= names.len();
            }
        }
    }
}
