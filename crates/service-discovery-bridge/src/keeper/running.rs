//! The tasks that run.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::model::BindingKey;

/// The tasks of bindings that run. A binding never has two: one that was stopped may be making a change, and the next one
/// starts when it has ended.
#[derive(Default)]
pub(super) struct RunningTasks {
    running: HashMap<BindingKey, CancellationToken>,
    ends: FuturesUnordered<BoxFuture<'static, BindingKey>>,
}

impl RunningTasks {
    /// Starts the task of a binding, unless one runs. `task` gets the token that stops it.
    pub(super) fn start<F>(&mut self, key: BindingKey, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Entry::Vacant(entry) = self.running.entry(key) else { return };
        let key = entry.key().clone();
        let stop = entry.insert(CancellationToken::new()).clone();
        let task = tokio::spawn(task(stop));
        let end = async move {
            if let Err(error) = task.await {
                tracing::error!(binding = %key, %error, "the task of a binding failed");
            }
            key
        };
        self.ends.push(end.boxed());
    }

    /// Stops the tasks of other bindings than these.
    pub(super) fn stop_others(&mut self, wanted: &HashSet<BindingKey>) {
        let others = self.running.iter().filter(|(key, _)| !wanted.contains(key));
        others.for_each(|(_, stop)| stop.cancel());
    }

    /// Waits until a task has ended, and returns its binding. `None` if none runs.
    pub(super) async fn next_end(&mut self) -> Option<BindingKey> {
        let key = self.ends.next().await?;
        self.running.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_binding_never_has_two_tasks() {
        let key = BindingKey { namespace: "shop".to_owned(), name: "web".to_owned() };
        let (starts, change_is_made) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let task = |stop: CancellationToken| {
            starts.fetch_add(1, Ordering::SeqCst);
            let change_is_made = Arc::clone(&change_is_made);
            async move {
                stop.cancelled().await;
                change_is_made.notified().await;
            }
        };
        let mut tasks = RunningTasks::default();
        let wanted = HashSet::from([key.clone()]);
        tasks.start(key.clone(), task);
        tasks.stop_others(&wanted);
        assert!(futures::poll!(std::pin::pin!(tasks.next_end())).is_pending());
        // The replica is not responsible for the binding, and then it is again.
        tasks.stop_others(&HashSet::new());
        tasks.start(key.clone(), task);
        assert_eq!(starts.load(Ordering::SeqCst), 1);
        assert!(futures::poll!(std::pin::pin!(tasks.next_end())).is_pending());
        change_is_made.notify_one();
        assert_eq!(tasks.next_end().await, Some(key.clone()));
        assert_eq!(tasks.next_end().await, None);
        tasks.start(key.clone(), task);
        assert_eq!(starts.load(Ordering::SeqCst), 2);
    }
}
