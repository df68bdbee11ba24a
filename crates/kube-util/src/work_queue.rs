//! A queue without duplicates. Its size is bounded by the number of different items.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A first-in, first-out queue in which each item is present at most once. It supports one reader.
#[derive(Debug)]
pub struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct QueueState<T> {
    order: VecDeque<T>,
    present: HashSet<T>,
    closed: bool,
}

impl<T> Default for WorkQueue<T> {
    fn default() -> Self {
        let state = QueueState { order: VecDeque::new(), present: HashSet::new(), closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T: Clone + Eq + Hash> WorkQueue<T> {
    /// Appends `item`, unless it is already queued or the queue is closed.
    pub fn push(&self, item: T) {
        let mut state = self.state.lock();
        if !state.closed && state.present.insert(item.clone()) {
            state.order.push_back(item);
            self.changed.notify_one();
        }
    }

    /// Discards all items and rejects new ones.
    pub fn close(&self) {
        let mut state = self.state.lock();
        *state = QueueState { order: VecDeque::new(), present: HashSet::new(), closed: true };
        self.changed.notify_one();
    }

    /// Waits for the first item and removes it. Returns `None` once the queue is closed.
    pub async fn next(&self) -> Option<T> {
        loop {
            {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                if let Some(item) = state.order.pop_front() {
                    state.present.remove(&item);
                    return Some(item);
                }
            }
            self.changed.notified().await;
        }
    }

    /// Removes the first item. Returns `None` if the queue is empty.
    pub fn try_next(&self) -> Option<T> {
        let mut state = self.state.lock();
        let item = state.order.pop_front()?;
        state.present.remove(&item);
        Some(item)
    }
}

/// Returns the items of `queue` as a stream that ends when the queue is closed.
pub fn stream<T: Clone + Eq + Hash + Send + 'static>(
    queue: Arc<WorkQueue<T>>,
) -> impl Stream<Item = T> + Send + 'static {
    futures::stream::unfold(queue, |queue| async move { queue.next().await.map(|item| (item, queue)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[tokio::test]
    async fn items_are_queued_once_and_in_order() {
        let queue = Arc::new(WorkQueue::default());
        for item in ["a", "b", "a"] {
            queue.push(item);
        }
        assert_eq!(queue.next().await, Some("a"));
        queue.push("a");
        assert_eq!((queue.try_next(), queue.try_next(), queue.try_next()), (Some("b"), Some("a"), None));
        queue.push("c");
        queue.close();
        queue.push("d");
        assert_eq!(stream(queue).collect::<Vec<_>>().await, Vec::<&str>::new());
    }
}
