//! Answers DONE to questions that are closed.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use podward_core::hooks::{Evidence, Phase, Question};

/// For so long an answer is good that led to a write: if that is refused (somebody else wrote first) the question is open again, and
/// need not be asked again.
const KEPT: Duration = Duration::from_secs(10);
/// And no more of them.
const MOST: usize = 10_000;

/// UID, hook, phase and time of the question.
type Key = (String, String, Phase, i64);

/// The latest of them.
#[derive(Debug, Default)]
pub(super) struct Settled {
    answers: HashMap<Key, (Evidence, Instant)>,
    order: VecDeque<(Instant, Key)>,
}

impl Settled {
    pub(super) fn put(&mut self, uid: String, question: Question, evidence: Evidence, now: Instant) {
        let key = (uid, question.hook, question.phase, question.since.0);
        self.answers.insert(key.clone(), (evidence, now));
        self.order.push_back((now, key));
        if self.order.len() > MOST {
            self.drop_oldest();
        }
    }

    pub(super) fn get(&self, uid: &str, question: &Question) -> Option<Evidence> {
        self.answers.get(&key(uid, question)).map(|(evidence, _)| evidence.clone())
    }

    pub(super) fn take(&mut self, uid: &str, question: &Question) -> Option<Evidence> {
        self.answers.remove(&key(uid, question)).map(|(evidence, _)| evidence)
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.answers.retain(|(of, ..), _| of != uid);
    }

    /// Forgets those that are too old.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= KEPT) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((since, key)) = self.order.pop_front() else { return };
        // It may have been taken, and put in again later.
        if self.answers.get(&key).is_some_and(|(_, put)| *put == since) {
            self.answers.remove(&key);
        }
    }
}

fn key(uid: &str, question: &Question) -> Key {
    (uid.to_owned(), question.hook.clone(), question.phase, question.since.0)
}
