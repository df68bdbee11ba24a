//! A cache of answers with a limited time to live.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Answers by question. Equal questions at the same time are asked once. It has at most `capacity` answers.
#[derive(Debug)]
pub(super) struct AnswerCache<K, V> {
    slots: Mutex<HashMap<K, Arc<CacheSlot<V>>>>,
    capacity: usize,
}

#[derive(Debug)]
struct CacheSlot<V> {
    /// Locked by the caller that asks; the others wait for its answer.
    answer: tokio::sync::Mutex<Option<CachedAnswer<V>>>,
    made: Instant,
}

#[derive(Debug)]
struct CachedAnswer<V> {
    value: V,
    until: Instant,
}

impl<V> CachedAnswer<V> {
    fn is_good(&self) -> bool {
        Instant::now() < self.until
    }
}

impl<K: Clone + Eq + Hash, V: Clone> AnswerCache<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { slots: Mutex::default(), capacity }
    }

    /// Returns the answer for `key`: a cached one, or that of `ask`, which also returns its time to live.
    pub(super) async fn get_or_ask(&self, key: K, ask: impl Future<Output = (V, Duration)>) -> V {
        let slot = self.slot(key);
        let mut held = slot.answer.lock().await;
        if let Some(answer) = held.as_ref().filter(|answer| answer.is_good()) {
            return answer.value.clone();
        }
        let (value, good_for) = ask.await;
        *held = Some(CachedAnswer { value: value.clone(), until: Instant::now() + good_for });
        value
    }

    /// Returns the cached answer for `key`. `None` if there is none, or it is being asked.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let slot = self.slots.lock().get(key).map(Arc::clone)?;
        let held = slot.answer.try_lock().ok()?;
        held.as_ref().filter(|answer| answer.is_good()).map(|answer| answer.value.clone())
    }

    fn slot(&self, key: K) -> Arc<CacheSlot<V>> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        if slots.len() >= self.capacity {
            make_room(&mut slots);
        }
        let slot = Arc::new(CacheSlot { answer: tokio::sync::Mutex::new(None), made: Instant::now() });
        slots.insert(key, Arc::clone(&slot));
        slot
    }
}

/// Removes the expired answers; if there are none, the older half. A caller that is still asking keeps its slot alive.
fn make_room<K: Clone + Eq + Hash, V>(slots: &mut HashMap<K, Arc<CacheSlot<V>>>) {
    let before = slots.len();
    let is_good = |slot: &CacheSlot<V>| {
        slot.answer.try_lock().map_or(true, |held| held.as_ref().is_some_and(CachedAnswer::is_good))
    };
    slots.retain(|_, slot| is_good(slot));
    if slots.len() == before {
        let mut ages: Vec<Instant> = slots.values().map(|slot| slot.made).collect();
        let middle = ages.len() / 2;
        let (_, median, _) = ages.select_nth_unstable(middle);
        let median = *median;
        slots.retain(|_, slot| slot.made > median);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn an_answer_is_cached_until_it_expires() {
        let (cache, asked) = (AnswerCache::new(4), AtomicUsize::new(0));
        let asked = &asked;
        let get = |good_for| {
            cache.get_or_ask("key", async move { (asked.fetch_add(1, Ordering::SeqCst), good_for) })
        };
        assert_eq!((get(TTL).await, get(TTL).await), (0, 0));
        let cache = AnswerCache::new(4);
        let get = |good_for| {
            cache.get_or_ask("key", async move { (asked.fetch_add(1, Ordering::SeqCst), good_for) })
        };
        assert_eq!((get(Duration::ZERO).await, get(Duration::ZERO).await), (1, 2));
    }

    #[tokio::test]
    async fn equal_questions_are_asked_once() {
        let (cache, asked) = (AnswerCache::new(4), AtomicUsize::new(0));
        let get = |_| {
            cache.get_or_ask("key", async {
                tokio::task::yield_now().await;
                (asked.fetch_add(1, Ordering::SeqCst), TTL)
            })
        };
        assert_eq!(futures::future::join_all((0..100).map(get)).await, vec![0; 100]);
    }

    #[tokio::test]
    async fn a_cancelled_caller_leaves_the_question_to_the_next() {
        let cache = AnswerCache::new(4);
        let never = cache.get_or_ask("key", std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(1), never).await.is_err());
        assert_eq!(cache.get_or_ask("key", async { (7, TTL) }).await, 7);
    }

    #[tokio::test]
    async fn it_never_grows_beyond_its_capacity() {
        let cache = AnswerCache::new(8);
        for key in 0..1000 {
            cache.get_or_ask(key, async { ((), TTL) }).await;
            assert!(cache.slots.lock().len() <= 8);
        }
        // The newest is still cached.
        cache.get_or_ask(999, async { panic!("asked again") }).await;
    }
}
