//! The answers DONE to closed questions.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use podward_core::hooks::{Evidence, HookPhase, HookQuestion};

/// How long an answer is kept. If the write that it led to is rejected (another writer was faster), the question is
/// opened again, and the hook need not be called again.
const RETENTION: Duration = Duration::from_secs(10);
/// The maximum number of kept answers.
const MAX_ANSWERS: usize = 10_000;

/// UID of the pod, and hook.
type AnswerKey = (String, String);

/// The kept answers.
#[derive(Debug, Default)]
pub(super) struct RecentAnswers {
    answers: HashMap<AnswerKey, Vec<KeptAnswer>>,
    order: VecDeque<(Instant, AnswerKey)>,
}

#[derive(Debug)]
struct KeptAnswer {
    question: HookQuestion,
    evidence: Evidence,
    kept_since: Instant,
}

impl RecentAnswers {
    pub(super) fn put(&mut self, uid: String, question: HookQuestion, evidence: Evidence, now: Instant) {
        let key = (uid, question.hook.clone());
        let answer = KeptAnswer { question, evidence, kept_since: now };
        self.answers.entry(key.clone()).or_default().push(answer);
        self.order.push_back((now, key));
        if self.order.len() > MAX_ANSWERS {
            self.drop_oldest();
        }
    }

    pub(super) fn get(&self, uid: &str, question: &HookQuestion) -> Option<Evidence> {
        let answers = self.answers.get(&key(uid, question))?;
        answers
            .iter()
            .find(|answer| is_same(&answer.question, question))
            .map(|answer| answer.evidence.clone())
    }

    /// Removes the answer to `question`, which is asked now, and returns it. Also removes the answers that the question
    /// makes obsolete: once a hook is asked to add, drain or forget a pod, its answer to another of these questions does
    /// not say any more whether it uses the pod.
    pub(super) fn take(&mut self, uid: &str, question: &HookQuestion) -> Option<Evidence> {
        let Entry::Occupied(mut answers) = self.answers.entry(key(uid, question)) else { return None };
        let place = answers.get().iter().position(|answer| is_same(&answer.question, question));
        let taken = place.map(|place| answers.get_mut().swap_remove(place).evidence);
        if changes_use(question.phase) {
            answers
                .get_mut()
                .retain(|other| other.question.phase == question.phase || !changes_use(other.question.phase));
        }
        if answers.get().is_empty() {
            answers.remove();
        }
        taken
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.answers.retain(|(of, _), _| of != uid);
    }

    /// Removes the answers of a hook.
    pub(super) fn forget_hook(&mut self, hook: &str) {
        self.answers.retain(|(_, by), _| by != hook);
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
        if let Entry::Occupied(mut answers) = self.answers.entry(key) {
            answers.get_mut().retain(|answer| answer.kept_since > since);
            if answers.get().is_empty() {
                answers.remove();
            }
        }
    }
}

/// True if the hook uses the pod after the answer DONE in this phase, or no longer uses it.
fn changes_use(phase: HookPhase) -> bool {
    matches!(phase, HookPhase::Prepare | HookPhase::Complete | HookPhase::Release)
}

fn key(uid: &str, question: &HookQuestion) -> AnswerKey {
    (uid.to_owned(), question.hook.clone())
}

/// Returns true if the answer to `asked` answers `question`: hook, phase and time identify a question of a pod. In a check
/// the types of its operations do too: they may change while the time stays.
pub(super) fn is_same(asked: &HookQuestion, question: &HookQuestion) -> bool {
    let is_check = matches!(question.phase, HookPhase::PreCheck | HookPhase::PostCheck);
    let covers = || question.operations.iter().all(|operation| asked.operations.contains(operation));
    asked.since == question.since
        && asked.phase == question.phase
        && asked.hook == question.hook
        && (!is_check || covers())
}
