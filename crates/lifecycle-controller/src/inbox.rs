//! A queue in which each thing waits once, however often it is put in: bounded by the number of different things.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The queue. It has one reader.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    state: Mutex<State<T>>,
    bell: Notify,
}

#[derive(Debug)]
struct State<T> {
    order: VecDeque<T>,
    present: HashSet<T>,
    closed: bool,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let state = State { order: VecDeque::new(), present: HashSet::new(), closed: false };
        Self { state: Mutex::new(state), bell: Notify::new() }
    }
}

impl<T: Clone + Eq + Hash> Inbox<T> {
    /// Puts `item` at the end, unless it waits already.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.state.lock();
        if !state.closed && state.present.insert(item.clone()) {
            state.order.push_back(item);
            self.bell.notify_one();
        }
    }

    /// Nothing comes in or out any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        *state = State { order: VecDeque::new(), present: HashSet::new(), closed: true };
        self.bell.notify_one();
    }

    /// The first one, when there is one; `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<T> {
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
            self.bell.notified().await;
        }
    }

    /// The first one, if there is one now.
    #[cfg(test)]
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.state.lock();
        let item = state.order.pop_front()?;
        state.present.remove(&item);
        Some(item)
    }
}

/// All that comes in, until the queue is closed.
pub(crate) fn stream<T: Clone + Eq + Hash + Send + 'static>(
    inbox: Arc<Inbox<T>>,
) -> impl Stream<Item = T> + Send + 'static {
    futures::stream::unfold(inbox, |inbox| async move { inbox.next().await.map(|item| (item, inbox)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[tokio::test]
    async fn each_thing_waits_once_in_order() {
        let inbox = Arc::new(Inbox::default());
        for item in ["a", "b", "a"] {
            inbox.push(item);
        }
        assert_eq!(inbox.next().await, Some("a"));
        inbox.push("a");
        assert_eq!((inbox.pop(), inbox.pop(), inbox.pop()), (Some("b"), Some("a"), None));
        inbox.push("c");
        inbox.close();
        inbox.push("d");
        assert_eq!(stream(inbox).collect::<Vec<_>>().await, Vec::<&str>::new());
    }
}
