//! A stand-in for a queue. Tasks are numbers, and every task is waiting, taken or done.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The largest number of tasks.
const MAX_TASKS: usize = 100_000;

/// The queue, with the state of all tasks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// The waiting tasks, the next one first.
    waiting: VecDeque<u64>,
    /// The tasks in progress, with the pod of each.
    taken: BTreeMap<u64, String>,
    /// The completed tasks, with the pod of each.
    done: BTreeMap<u64, String>,
    /// The number of tasks that were put back because their worker had to stop.
    put_back: u64,
    next: u64,
}

impl Queue {
    /// Adds `count` tasks. Returns false if the queue is full.
    pub(crate) fn add(&mut self, count: usize) -> bool {
        let all = self.waiting.len() + self.taken.len() + self.done.len();
        if all.saturating_add(count) > MAX_TASKS {
            return false;
        }
        for _ in 0..count {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
        true
    }

    /// Returns the number of waiting tasks.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn take(&mut self, worker: String) -> Option<u64> {
        let task = self.waiting.pop_front()?;
        self.taken.insert(task, worker);
        Some(task)
    }

    /// Completes a task. Returns false if `worker` does not have it.
    pub(crate) fn finish(&mut self, task: u64, worker: &str) -> bool {
        self.untake(task, worker) && self.done.insert(task, worker.to_owned()).is_none()
    }

    /// Puts a task back. Returns false if `worker` does not have it.
    pub(crate) fn put_back(&mut self, task: u64, worker: &str) -> bool {
        let had = self.untake(task, worker);
        if had {
            self.waiting.push_front(task);
            self.put_back += 1;
        }
        had
    }

    fn untake(&mut self, task: u64, worker: &str) -> bool {
        let has = self.taken.get(&task).is_some_and(|taken_by| taken_by == worker);
        has && self.taken.remove(&task).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_waiting_taken_or_done() {
        let mut queue = Queue::default();
        assert!(queue.add(2) && !queue.add(MAX_TASKS));
        assert_eq!((queue.take("a".to_owned()), queue.take("b".to_owned())), (Some(0), Some(1)));
        assert_eq!(queue.take("a".to_owned()), None);
        assert!(!queue.finish(0, "b"), "another worker has the task");
        assert!(queue.finish(0, "a") && !queue.finish(0, "a"));
        assert!(queue.put_back(1, "b") && !queue.put_back(1, "b"));
        assert_eq!(queue.take("a".to_owned()), Some(1));
        assert_eq!((queue.put_back, queue.done.len()), (1, 1));
    }
}
