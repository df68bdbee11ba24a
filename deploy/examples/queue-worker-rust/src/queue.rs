//! A stand-in for a queue: tasks are numbers, and every task is waiting, taken, or done.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// More tasks than this at a time are refused.
const MOST: usize = 100_000;

/// The queue, and its account for whoever wants to know what became of the tasks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// Tasks that nobody has taken yet, the next one first.
    waiting: VecDeque<u64>,
    /// Tasks at work, and the pod that each is in.
    taken: BTreeMap<u64, String>,
    /// Tasks that are done, and the pod that did each.
    done: BTreeMap<u64, String>,
    /// How often a task was put back because its worker had to stop.
    put_back: u64,
    next: u64,
}

impl Queue {
    /// Adds `count` tasks. Gives whether there was room.
    pub(crate) fn add(&mut self, count: usize) -> bool {
        let all = self.waiting.len() + self.taken.len() + self.done.len();
        if all.saturating_add(count) > MOST {
            return false;
        }
        for _ in 0..count {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
        true
    }

    /// How many tasks nobody has taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn take(&mut self, worker: String) -> Option<u64> {
        let task = self.waiting.pop_front()?;
        self.taken.insert(task, worker);
        Some(task)
    }

    /// Gives whether `worker` had the task.
    pub(crate) fn finish(&mut self, task: u64, worker: &str) -> bool {
        self.let_go(task, worker) && self.done.insert(task, worker.to_owned()).is_none()
    }

    /// Gives whether `worker` had the task.
    pub(crate) fn put_back(&mut self, task: u64, worker: &str) -> bool {
        let had = self.let_go(task, worker);
        if had {
            self.waiting.push_front(task);
            self.put_back += 1;
        }
        had
    }

    fn let_go(&mut self, task: u64, worker: &str) -> bool {
        let has = self.taken.get(&task).is_some_and(|taken_by| taken_by == worker);
        has && self.taken.remove(&task).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_somewhere() {
        let mut queue = Queue::default();
        assert!(queue.add(2) && !queue.add(MOST));
        assert_eq!((queue.take("a".to_owned()), queue.take("b".to_owned())), (Some(0), Some(1)));
        assert_eq!(queue.take("a".to_owned()), None);
        assert!(!queue.finish(0, "b"), "it is the other's");
        assert!(queue.finish(0, "a") && !queue.finish(0, "a"));
        assert!(queue.put_back(1, "b") && !queue.put_back(1, "b"));
        assert_eq!(queue.take("a".to_owned()), Some(1));
        assert_eq!((queue.put_back, queue.done.len()), (1, 1));
    }
}
