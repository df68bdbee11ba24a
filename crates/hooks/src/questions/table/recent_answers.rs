//! The answers DONE to closed questions.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use podward_core::hooks::{Evidence, HookPhase, HookQuestion};

/// How long an answer is kept. If the write that it led to is rejected (another writer was faster), the question is
/// opened again, and the hook need not be called again.
const RETENTION: Duration = Duration::from_secs(10);
/// The maximum number of kept answers.
const MAX_ANSWERS: usize = 10_000;

/// UID, hook, phase and time of the question.
type AnswerKey = (String, String, HookPhase, i64);

/// The kept answers.
#[derive(Debug, Default)]
pub(super) struct RecentAnswers {
    answers: HashMap<AnswerKey, (Evidence, Instant)>,
    order: VecDeque<(Instant, AnswerKey)>,
}

impl RecentAnswers {
    pub(super) fn put(&mut self, uid: String, question: HookQuestion, evidence: Evidence, now: Instant) {
        let key = (uid, question.hook, question.phase, question.since.0);
        self.answers.insert(key.clone(), (evidence, now));
        self.order.push_back((now, key));
        if self.order.len() > MAX_ANSWERS {
            self.drop_oldest();
        }
    }

    pub(super) fn get(&self, uid: &str, question: &HookQuestion) -> Option<Evidence> {
        self.answers.get(&key(uid, question)).map(|(evidence, _)| evidence.clone())
    }

    pub(super) fn take(&mut self, uid: &str, question: &HookQuestion) -> Option<Evidence> {
        self.answers.remove(&key(uid, question)).map(|(evidence, _)| evidence)
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.answers.retain(|(of, ..), _| of != uid);
    }

    /// Removes the answers that are too old.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= RETENTION)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((since, key)) = self.order.pop_front() else { return };
        // The answer may have been taken, and stored again later.
        if self.answers.get(&key).is_some_and(|(_, put)| *put == since) {
            self.answers.remove(&key);
        }
    }
}

fn key(uid: &str, question: &HookQuestion) -> AnswerKey {
    (uid.to_owned(), question.hook.clone(), question.phase, question.since.0)
}
