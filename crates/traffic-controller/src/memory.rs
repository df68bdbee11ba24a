//! What is remembered of questions: how far their waits are, and which pods are being taken out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_core::UnixNanos;

use crate::clock::after;
use crate::verdict::Progress;

/// A question that isn't asked again for so long is forgotten.
const QUESTION: Duration = Duration::from_secs(600);
/// How long a pod whose operation may start counts as on its way out, unless PREPARE follows.
const MAY_LEAVE: Duration = Duration::from_secs(60);
/// How long a pod that lets go counts so, unless it is taken in again.
const LEAVES: Duration = Duration::from_secs(3600);
/// Entries of each kind. Past it what is oldest is lost: a wait begins again.
const MOST: usize = 20_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    questions: Mutex<HashMap<String, (Progress, UnixNanos)>>,
    leaving: Mutex<HashMap<Arc<str>, UnixNanos>>,
}

impl Memory {
    /// Works on what is remembered of a question.
    pub(crate) fn question<T>(&self, id: &str, now: UnixNanos, work: impl FnOnce(&mut Progress) -> T) -> T {
        let mut questions = self.questions.lock();
        if !questions.contains_key(id) {
            make_room(&mut questions, now, |(_, until)| *until);
        }
        let (progress, until) = questions.entry(id.to_owned()).or_insert_with(|| (Progress::default(), now));
        *until = after(now, QUESTION);
        work(progress)
    }

    /// A question is answered.
    pub(crate) fn answered(&self, id: &str) {
        self.questions.lock().remove(id);
    }

    /// An operation on the pod may start.
    pub(crate) fn may_leave(&self, uid: &Arc<str>, now: UnixNanos) {
        self.mark(uid, now, MAY_LEAVE);
    }

    /// The pod is being taken out.
    pub(crate) fn leaves(&self, uid: &Arc<str>, now: UnixNanos) {
        self.mark(uid, now, LEAVES);
    }

    /// The pod is taken in.
    pub(crate) fn stays(&self, uid: &Arc<str>) {
        self.leaving.lock().remove(uid);
    }

    /// Whether the pod is on its way out, or may be.
    pub(crate) fn is_leaving(&self, uid: &Arc<str>, now: UnixNanos) -> bool {
        self.leaving.lock().get(uid).is_some_and(|until| *until > now)
    }

    fn mark(&self, uid: &Arc<str>, now: UnixNanos, time: Duration) {
        let mut leaving = self.leaving.lock();
        if !leaving.contains_key(uid) {
            make_room(&mut leaving, now, |until| *until);
        }
        let until = leaving.entry(Arc::clone(uid)).or_insert(now);
        *until = after(now, time).max(*until);
    }
}

/// Sees to it that one more fits.
fn make_room<K: Clone + Eq + std::hash::Hash, V>(
    entries: &mut HashMap<K, V>,
    now: UnixNanos,
    until: impl Fn(&V) -> UnixNanos,
) {
    if entries.len() < MOST {
        return;
    }
    entries.retain(|_, entry| until(entry) > now);
    if entries.len() >= MOST {
        let mut ends: Vec<UnixNanos> = entries.values().map(&until).collect();
        let (_, middle, _) = ends.select_nth_unstable(MOST / 10);
        let middle = *middle;
        entries.retain(|_, entry| until(entry) > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_there_is_room_for() {
        let memory = Memory::default();
        for number in 0..MOST + 10 {
            memory.question(&number.to_string(), UnixNanos(number as i64), |_| ());
            memory.leaves(&number.to_string().into(), UnixNanos(number as i64));
        }
        assert!(memory.questions.lock().len() <= MOST && memory.leaving.lock().len() <= MOST);
        assert!(memory.questions.lock().contains_key(&(MOST + 9).to_string()));
    }

    #[test]
    fn a_pod_leaves_until_it_is_taken_in_or_its_time_is_over() {
        let (memory, uid): (_, Arc<str>) = (Memory::default(), "u".into());
        let at = |seconds: i64| UnixNanos(seconds * 1_000_000_000);
        memory.may_leave(&uid, at(0));
        assert!(memory.is_leaving(&uid, at(59)) && !memory.is_leaving(&uid, at(61)));
        memory.leaves(&uid, at(30));
        memory.may_leave(&uid, at(31));
        assert!(memory.is_leaving(&uid, at(3000)), "the longer time counts");
        memory.stays(&uid);
        assert!(!memory.is_leaving(&uid, at(31)));
    }
}
