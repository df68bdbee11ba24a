//! What a client has learned of the API server: a cache that a watch fills, late, with gaps, or anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::Object;
use super::server::Event;

#[derive(Clone, Debug, Default)]
pub(crate) struct WatchCache {
    /// The place in the history that the watch has reached.
    cursor: usize,
    pods: BTreeMap<&'static str, Arc<Object>>,
}

impl WatchCache {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Object>> {
        self.pods.get(name)
    }

    /// Receives up to `events` events.
    pub(crate) fn follow(&mut self, history: &[Event], events: usize) {
        let end = self.cursor.saturating_add(events).min(history.len());
        for Event { name, stored } in &history[self.cursor.min(end)..end] {
            match stored {
                Some(stored) => self.pods.insert(name, stored.clone()),
                None => self.pods.remove(name),
            };
        }
        self.cursor = end;
    }

    /// Loses up to `events` events. The client does not learn of them until it lists again.
    pub(crate) fn lose(&mut self, history: &[Event], events: usize) {
        self.cursor = (self.cursor + events).min(history.len());
    }

    /// Lists anew, at an API server that is `age` events behind.
    pub(crate) fn list(&mut self, history: &[Event], age: usize) {
        *self = WatchCache::default();
        self.follow(&history[..history.len().saturating_sub(age)], usize::MAX);
    }
}
