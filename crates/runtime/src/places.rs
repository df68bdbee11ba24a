//! Places of which one key gets only a part, so that one client or tenant cannot use up those of others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// A number of places, in total and for each key. Clones share them.
#[derive(Clone, Debug)]
pub struct Places<K: Clone + Eq + Hash> {
    total: usize,
    of_key: usize,
    taken: Arc<Mutex<TakenPlaces<K>>>,
}

#[derive(Debug)]
struct TakenPlaces<K> {
    total: usize,
    by_key: HashMap<K, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Place<K: Clone + Eq + Hash> {
    key: Option<K>,
    taken: Arc<Mutex<TakenPlaces<K>>>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// All places are taken.
    InTotal,
    /// The key has taken all that it gets.
    OfKey,
}

impl<K: Clone + Eq + Hash> Places<K> {
    /// Returns `total` places, of which each key gets at most `of_key`.
    #[must_use]
    pub fn new(total: usize, of_key: usize) -> Self {
        let taken = TakenPlaces { total: 0, by_key: HashMap::new() };
        Self { total, of_key, taken: Arc::new(Mutex::new(taken)) }
    }

    /// Takes a place for `key`. Without a key, the place counts only in total.
    ///
    /// # Errors
    /// If all places are taken, or all that the key gets.
    pub fn take(&self, key: Option<K>) -> Result<Place<K>, NoPlace> {
        let mut taken = self.taken.lock();
        if taken.total >= self.total {
            return Err(NoPlace::InTotal);
        }
        if let Some(key) = &key {
            let of_key = taken.by_key.get(key).copied().unwrap_or_default();
            if of_key >= self.of_key {
                return Err(NoPlace::OfKey);
            }
            taken.by_key.insert(key.clone(), of_key + 1);
        }
        taken.total += 1;
        Ok(Place { key, taken: Arc::clone(&self.taken) })
    }

    /// Returns true if no place is taken.
    #[must_use]
    pub fn are_free(&self) -> bool {
        let taken = self.taken.lock();
        taken.total == 0 && taken.by_key.is_empty()
    }
}

impl<K: Clone + Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.total -= 1;
        if let Some(key) = &self.key
            && let Some(of_key) = taken.by_key.get_mut(key)
        {
            *of_key -= 1;
            if *of_key == 0 {
                taken.by_key.remove(key);
            }
        }
    }
}
