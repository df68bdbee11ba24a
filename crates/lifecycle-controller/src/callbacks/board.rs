//! The open questions of all pods, and what is known of their answers. It knows no clock and no network: drivers ask it what to do
//! next, and tell it what came of it.

mod hook;
mod outcome;
mod settled;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kube::runtime::reflector::ObjectRef;
use podward_core::hooks::{Answer, Phase, Question};
use podward_proto::v1;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::metrics::HookMetrics;
use super::queue::{Place, QuestionId, Turn};
use super::registered::Registered;
use super::request;
use crate::cached_pod::CachedPod;
use crate::inbox::Inbox;
use hook::HookState;
pub(super) use hook::Standing;
use settled::Settled;

/// Who is told of what happens on the board.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    /// Pods to be looked at again.
    pub(super) pods: Arc<Inbox<ObjectRef<CachedPod>>>,
    /// Hooks of which something is known that was not before.
    pub(super) hooks: Arc<Inbox<String>>,
    pub(super) metrics: HookMetrics,
}

/// The board. What it remembers is bounded by the questions that are open (and, for some seconds, those just answered).
#[derive(Debug, Default)]
pub(super) struct Board {
    pods: HashMap<String, Asked>,
    questions: HashMap<QuestionId, Entry>,
    hooks: HashMap<String, HookState>,
    settled: Settled,
    last_id: u64,
    out: Outbox,
}

/// The questions of one pod.
#[derive(Debug)]
struct Asked {
    pod: Arc<CachedPod>,
    questions: Vec<QuestionId>,
}

#[derive(Debug)]
struct Entry {
    uid: String,
    question: Question,
    place: Place,
    answer: Option<Answer>,
    attempt: u32,
    failures: u32,
    rejections: u32,
    /// Ends the call in flight.
    cancel: CancellationToken,
}

/// What a driver does next.
#[derive(Debug)]
pub(super) enum Next {
    Call(Box<Call>),
    Probe,
    /// Nothing before then, or before the bell rings.
    Wait(Option<Instant>),
}

/// A call to be made.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: QuestionId,
    pub(super) attempt: u32,
    pub(super) phase: Phase,
    pub(super) request: v1::HandleRequest,
    /// Nobody waits for the answer any more.
    pub(super) cancelled: CancellationToken,
}

impl Board {
    pub(super) fn new(out: Outbox) -> Self {
        Board { out, ..Board::default() }
    }

    /// From now on `questions` are those of `pod`: new ones get in line, those that are not among them are closed.
    pub(super) fn ask(&mut self, pod: &Arc<CachedPod>, questions: &[Question], now: Instant) {
        self.settled.expire(now);
        let uid = pod.uid();
        let mut before = self.pods.remove(uid).map(|asked| asked.questions).unwrap_or_default();
        let mut present = Vec::with_capacity(questions.len());
        for question in questions {
            let same = |id: &QuestionId| {
                self.questions.get(id).is_some_and(|entry| is_same(&entry.question, question))
            };
            if present.iter().any(same) {
                continue;
            }
            if let Some(index) = before.iter().position(same) {
                let id = before.swap_remove(index);
                if let Some(entry) = self.questions.get_mut(&id) {
                    entry.question.clone_from(question);
                }
                present.push(id);
            } else {
                present.push(self.open(uid, question));
            }
        }
        before.into_iter().for_each(|id| self.close(id, now));
        if !present.is_empty() {
            self.pods.insert(uid.to_owned(), Asked { pod: pod.clone(), questions: present });
        }
    }

    /// Nothing is asked about this pod any more.
    pub(super) fn forget(&mut self, uid: &str, now: Instant) {
        for id in self.pods.remove(uid).map(|asked| asked.questions).unwrap_or_default() {
            self.close(id, now);
        }
        self.settled.forget(uid);
    }

    /// The answer to a question.
    pub(super) fn answer(&self, uid: &str, question: &Question) -> Option<Answer> {
        let entry = self.pods.get(uid).and_then(|asked| {
            asked
                .questions
                .iter()
                .filter_map(|id| self.questions.get(id))
                .find(|entry| is_same(&entry.question, question))
        });
        match entry {
            Some(entry) => Some(self.visible(entry)),
            None => self.settled.get(uid, question).map(Answer::Done),
        }
    }

    /// The answer as it is told: of a hook that can't be reached, that is what counts.
    fn visible(&self, entry: &Entry) -> Answer {
        match &entry.answer {
            Some(answer @ (Answer::Done(_) | Answer::Rejected { .. })) => answer.clone(),
            other => {
                let problem = self.hooks.get(&entry.question.hook).and_then(HookState::problem);
                match (problem, other) {
                    (Some(problem), _) => Answer::Open { message: format!("it can't be reached: {problem}") },
                    (None, Some(answer)) => answer.clone(),
                    (None, None) => Answer::Open { message: String::new() },
                }
            }
        }
    }

    /// What the driver of `hook` is to do now.
    pub(super) fn next(&mut self, hook: &str, now: Instant) -> Next {
        let Some(state) = self.hooks.get_mut(hook) else { return Next::Wait(None) };
        for id in state.queue.take_due(Some(now)) {
            if let Some(entry) = self.questions.get_mut(&id) {
                entry.place = state.queue.line_up(id);
            }
        }
        let (id, probe) = match state.queue.turn(now) {
            Turn::Ask { id, probe } => (id, probe),
            Turn::Probe => return Next::Probe,
            Turn::Wait(until) => return Next::Wait(until),
        };
        self.out.hooks.push(hook.to_owned());
        let asked = self.questions.get_mut(&id).and_then(|entry| Some((self.pods.get(&entry.uid)?, entry)));
        let Some((asked, entry)) = asked else {
            // Questions leave their line when they are closed, so this is none of ours.
            state.queue.ended();
            return Next::Wait(Some(now));
        };
        entry.place = Place::InFlight { probe };
        entry.attempt = entry.attempt.saturating_add(1);
        entry.cancel = CancellationToken::new();
        Next::Call(Box::new(Call {
            id,
            attempt: entry.attempt,
            phase: entry.question.phase,
            request: request::build(&asked.pod, &entry.question, entry.attempt),
            cancelled: entry.cancel.clone(),
        }))
    }

    fn open(&mut self, uid: &str, question: &Question) -> QuestionId {
        self.last_id += 1;
        let id = QuestionId(self.last_id);
        let state = self.hooks.entry(question.hook.clone()).or_default();
        let answer = self.settled.take(uid, question).map(Answer::Done);
        let place = if answer.is_some() { Place::Out } else { state.queue.line_up(id) };
        if answer.is_none() {
            state.open += 1;
            state.count(&self.out.metrics);
            state.bell.notify_one();
            self.out.hooks.push(question.hook.clone());
        }
        let entry = Entry {
            uid: uid.to_owned(),
            question: question.clone(),
            place,
            answer,
            attempt: 0,
            failures: 0,
            rejections: 0,
            cancel: CancellationToken::new(),
        };
        self.questions.insert(id, entry);
        id
    }

    fn close(&mut self, id: QuestionId, now: Instant) {
        let Some(entry) = self.questions.remove(&id) else { return };
        entry.cancel.cancel();
        let hook = &entry.question.hook;
        if let Some(state) = self.hooks.get_mut(hook) {
            state.queue.leave(id, entry.place);
            if entry.place != Place::Out {
                state.open = state.open.saturating_sub(1);
                state.count(&self.out.metrics);
            }
            if state.is_unused() {
                self.hooks.remove(hook);
            }
        }
        if let Some(Answer::Done(evidence)) = entry.answer {
            self.settled.put(entry.uid, entry.question, evidence, now);
        }
    }

    /// `hook` is (still) registered, as this. Its driver starts over: what was in flight is asked again.
    pub(super) fn register(&mut self, registered: &Arc<Registered>) -> Arc<Notify> {
        let name = &registered.hook.name;
        let state = self.hooks.entry(name.clone()).or_default();
        state.registered = Some(registered.clone());
        state.tried = false;
        state.queue.restart(registered.max_concurrent_calls);
        self.out.hooks.push(name.clone());
        let bell = state.bell.clone();
        self.call_back(name);
        bell
    }

    /// `hook` is not registered any more. Its questions stay until their pods are looked at again.
    pub(super) fn deregister(&mut self, hook: &str) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.registered = None;
        if state.is_unused() {
            self.hooks.remove(hook);
        } else {
            self.call_back(hook);
        }
        self.out.metrics.forget(hook);
    }

    /// Questions in flight get in line again.
    fn call_back(&mut self, hook: &str) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        for (id, entry) in self.questions.iter_mut().filter(|(_, entry)| entry.question.hook == hook) {
            if let Place::InFlight { .. } = entry.place {
                entry.cancel.cancel();
                entry.place = state.queue.line_up(*id);
            }
        }
        state.count(&self.out.metrics);
        state.bell.notify_one();
    }

    /// A probe begins that no turn was taken for.
    pub(super) fn began(&mut self, hook: &str) {
        if let Some(state) = self.hooks.get_mut(hook) {
            state.queue.began();
        }
    }

    /// How `hook` stands.
    pub(super) fn standing(&self, hook: &str) -> Option<Standing> {
        self.hooks.get(hook).map(HookState::standing)
    }

    /// Ends all calls.
    pub(super) fn clear(&mut self) {
        self.questions.values().for_each(|entry| entry.cancel.cancel());
        self.out.metrics.forget_all();
        *self = Board::new(self.out.clone());
    }
}

/// Hook, phase and time name a question of a pod.
fn is_same(one: &Question, other: &Question) -> bool {
    one.since == other.since && one.phase == other.phase && one.hook == other.hook
}

#[cfg(test)]
mod tests;
