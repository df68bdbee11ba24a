//! A queue that serves its keys in turn.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A queue of items that belong to keys. Each key that has items is served once before one of them is served again; the
/// items of a key are served in the order of their arrival.
#[derive(Debug)]
pub struct RoundRobin<K, T> {
    /// The keys that have items, the next one first, each once.
    order: VecDeque<K>,
    items: HashMap<K, VecDeque<T>>,
}

impl<K, T> Default for RoundRobin<K, T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), items: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, T> RoundRobin<K, T> {
    /// Appends `item` to those of `key`. Before, items of `key` at its front are dropped while `is_stale`.
    pub fn push(&mut self, key: &K, item: T, is_stale: impl Fn(&T) -> bool) {
        if !self.items.contains_key(key) {
            self.order.push_back(key.clone());
        }
        let of_key = self.items.entry(key.clone()).or_default();
        while of_key.front().is_some_and(&is_stale) {
            of_key.pop_front();
        }
        of_key.push_back(item);
    }

    /// Removes the first item of the first key that `is_preferred`, or of the first key if none is.
    pub fn pop(&mut self, is_preferred: impl Fn(&K) -> bool) -> Option<(K, T)> {
        let place = self.order.iter().position(is_preferred).unwrap_or_default();
        let key = self.order.remove(place)?;
        let of_key = self.items.get_mut(&key)?;
        let item = of_key.pop_front()?;
        if of_key.is_empty() {
            self.items.remove(&key);
        } else {
            self.order.push_back(key.clone());
        }
        Some((key, item))
    }

    /// Returns whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_served_in_turn_unless_one_is_preferred() {
        let mut queue = RoundRobin::default();
        for (key, item) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("c", 6)] {
            queue.push(&key, item, |_| false);
        }
        queue.push(&"c", 7, |item| *item == 5);
        assert_eq!(queue.pop(|key| *key == "b"), Some(("b", 3)));
        let rest: Vec<i32> = std::iter::from_fn(|| queue.pop(|_| false)).map(|(_, item)| item).collect();
        assert_eq!(rest, [1, 6, 2, 7, 4]);
        assert!(queue.is_empty());
    }
}
