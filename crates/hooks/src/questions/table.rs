//! The open questions of all pods and their answers. It uses no clock and no network: drivers ask it what to do
//! next, and report the results.

mod hook_state;
mod output;
mod recent_answers;
mod results;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use podward_core::hooks::{HookAnswer, HookPhase, HookQuestion};
use podward_proto::v1;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::questions::queue::{QuestionId, QuestionState, QueueTurn};
use crate::questions::request;
use crate::registration::registered::{HookConnection, RegisteredHook};
pub(crate) use hook_state::HookHealth;
use hook_state::HookState;
pub(crate) use output::TableOutput;
use podward_kube_util::CachedPod;
use recent_answers::{RecentAnswers, is_same};

/// The time that a write takes at most, with its wait for a turn.
const TIME_TO_WRITE: Duration = Duration::from_secs(30);

/// The question table. It keeps the open questions and, for some seconds, the answers to closed ones.
#[derive(Debug, Default)]
pub(crate) struct QuestionTable {
    pods: HashMap<String, PodQuestions>,
    questions: HashMap<QuestionId, QuestionEntry>,
    hooks: HashMap<String, HookState>,
    recent: RecentAnswers,
    last_id: u64,
    out: TableOutput,
}

/// The questions of one pod.
#[derive(Debug)]
struct PodQuestions {
    pod: Arc<CachedPod>,
    questions: Vec<QuestionId>,
}

#[derive(Debug)]
struct QuestionEntry {
    uid: String,
    question: HookQuestion,
    place: QuestionState,
    answer: Option<HookAnswer>,
    attempt: u32,
    /// The number of attempts that did not reach the hook.
    lost: u32,
    /// The hook is not called before: see [`QuestionTable::withhold_unless_asked`].
    withheld_until: Option<Instant>,
    failures: u32,
    rejections: u32,
    /// Cancels the call in flight.
    cancel: CancellationToken,
}

/// The next step of a driver.
#[derive(Debug)]
pub(crate) enum NextStep {
    Call(Box<HookCall>),
    Probe,
    /// Wait until this time, or for the wakeup.
    Wait(Option<Instant>),
}

/// A call to be made.
#[derive(Debug)]
pub(crate) struct HookCall {
    pub(crate) id: QuestionId,
    pub(crate) attempt: u32,
    pub(crate) phase: HookPhase,
    pub(crate) request: v1::HandleRequest,
    /// Cancelled when the answer is no longer needed.
    pub(crate) cancelled: CancellationToken,
}

impl QuestionTable {
    pub(crate) fn new(out: TableOutput) -> Self {
        QuestionTable { out, ..QuestionTable::default() }
    }

    /// Replaces the questions of `pod`: new ones are queued, and those that are not in `questions` are closed.
    pub(crate) fn ask(&mut self, pod: &Arc<CachedPod>, questions: &[HookQuestion], now: Instant) {
        self.recent.expire(now);
        let uid = pod.uid();
        let mut before = self.pods.remove(uid).map(|asked| asked.questions).unwrap_or_default();
        let mut present = Vec::with_capacity(questions.len());
        let mut new: Vec<&HookQuestion> = Vec::new();
        for question in questions {
            let same = |id: &QuestionId| {
                self.questions.get(id).is_some_and(|entry| is_same(&entry.question, question))
            };
            if present.iter().any(same) || new.iter().any(|other| is_same(other, question)) {
                continue;
            }
            if let Some(index) = before.iter().position(same) {
                let id = before.swap_remove(index);
                if let Some(entry) = self.questions.get_mut(&id) {
                    entry.question.clone_from(question);
                }
                present.push(id);
            } else {
                new.push(question);
            }
        }
        // The answers to closed questions are kept before new questions are opened, which may make them obsolete.
        before.into_iter().for_each(|id| self.close(id, now));
        present.extend(new.into_iter().map(|question| self.open(uid, question)));
        if !present.is_empty() {
            self.pods.insert(uid.to_owned(), PodQuestions { pod: pod.clone(), questions: present });
        }
    }

    /// Closes all questions of the pod.
    pub(crate) fn forget(&mut self, uid: &str, now: Instant) {
        for id in self.pods.remove(uid).map(|asked| asked.questions).unwrap_or_default() {
            self.close(id, now);
        }
        self.recent.forget(uid);
    }

    /// Returns the answer to a question; `None` if the question is not open and has no kept answer.
    pub(crate) fn answer(&self, uid: &str, question: &HookQuestion) -> Option<HookAnswer> {
        let entry = self.pods.get(uid).and_then(|asked| {
            asked
                .questions
                .iter()
                .filter_map(|id| self.questions.get(id))
                .find(|entry| is_same(&entry.question, question))
        });
        match entry {
            Some(entry) => Some(self.visible(entry)),
            None => self.recent.get(uid, question).map(HookAnswer::Done),
        }
    }

    /// Returns true if a call of `phase` about the pod may have reached `hook`, and the question is open or its answer has
    /// had no effect yet. Otherwise the hook is not called about it for [`TIME_TO_WRITE`], so that the caller can act on that.
    pub(crate) fn withhold_unless_asked(
        &mut self,
        uid: &str,
        hook: &str,
        phase: HookPhase,
        now: Instant,
    ) -> bool {
        let (pods, state) = (&self.pods, self.hooks.get_mut(hook));
        let (Some(asked), Some(state)) = (pods.get(uid), state) else { return false };
        asked.questions.iter().any(|id| {
            let Some(entry) = self.questions.get_mut(id) else { return false };
            if entry.question.hook != hook || entry.question.phase != phase {
                return false;
            }
            let is_asked = entry.attempt > entry.lost || matches!(entry.answer, Some(HookAnswer::Done(_)));
            if !is_asked {
                state.queue.leave(*id, entry.place);
                let until = now + TIME_TO_WRITE;
                entry.withheld_until = Some(until);
                entry.place = state.queue.defer(*id, until);
                state.wakeup.notify_one();
            }
            is_asked
        })
    }

    /// Returns the answer to report. If the hook is unreachable, that is the message.
    fn visible(&self, entry: &QuestionEntry) -> HookAnswer {
        match &entry.answer {
            Some(answer @ (HookAnswer::Done(_) | HookAnswer::Rejected { .. })) => answer.clone(),
            other => {
                let problem = self.hooks.get(&entry.question.hook).and_then(HookState::problem);
                match (problem, other) {
                    (Some(problem), _) => {
                        HookAnswer::Open { message: format!("it can't be reached: {problem}") }
                    }
                    (None, Some(answer)) => answer.clone(),
                    (None, None) => HookAnswer::Open { message: String::new() },
                }
            }
        }
    }

    /// Returns the next step of the driver of `hook`.
    pub(crate) fn next(&mut self, hook: &str, now: Instant) -> NextStep {
        let Some(state) = self.hooks.get_mut(hook) else { return NextStep::Wait(None) };
        for id in state.queue.take_due(Some(now)) {
            if let Some(entry) = self.questions.get_mut(&id) {
                entry.place = state.queue.line_up(id);
            }
        }
        let (id, probe) = match state.queue.turn(now) {
            QueueTurn::Ask { id, probe } => (id, probe),
            QueueTurn::Probe => return NextStep::Probe,
            QueueTurn::Wait(until) => return NextStep::Wait(until),
        };
        self.out.hooks.push(hook.to_owned());
        let asked = self.questions.get_mut(&id).and_then(|entry| Some((self.pods.get(&entry.uid)?, entry)));
        let Some((asked, entry)) = asked else {
            // Closed questions are removed from their queue, so this does not happen.
            state.queue.ended();
            return NextStep::Wait(Some(now));
        };
        entry.place = QuestionState::InFlight { probe };
        entry.attempt = entry.attempt.saturating_add(1);
        entry.cancel = CancellationToken::new();
        NextStep::Call(Box::new(HookCall {
            id,
            attempt: entry.attempt,
            phase: entry.question.phase,
            request: request::build(&asked.pod, &entry.question, entry.attempt),
            cancelled: entry.cancel.clone(),
        }))
    }

    fn open(&mut self, uid: &str, question: &HookQuestion) -> QuestionId {
        self.last_id += 1;
        let id = QuestionId(self.last_id);
        let state = self.hooks.entry(question.hook.clone()).or_default();
        let answer = self.recent.take(uid, question).map(HookAnswer::Done);
        let place = if answer.is_some() { QuestionState::Out } else { state.queue.line_up(id) };
        if answer.is_none() {
            state.open += 1;
            state.count(&self.out.metrics);
            state.wakeup.notify_one();
            self.out.hooks.push(question.hook.clone());
        }
        let entry = QuestionEntry {
            uid: uid.to_owned(),
            question: question.clone(),
            place,
            answer,
            attempt: 0,
            lost: 0,
            withheld_until: None,
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
            if entry.place != QuestionState::Out {
                state.open = state.open.saturating_sub(1);
                state.count(&self.out.metrics);
            }
            if state.is_unused() {
                self.hooks.remove(hook);
            }
        }
        if let Some(HookAnswer::Done(evidence)) = entry.answer {
            self.recent.put(entry.uid, entry.question, evidence, now);
        }
    }

    /// Stores the registration of a hook. Its driver starts anew, so calls in flight are repeated.
    pub(crate) fn register(&mut self, registered: &Arc<RegisteredHook>) -> Arc<Notify> {
        let name = &registered.hook.name;
        let state = self.hooks.entry(name.clone()).or_default();
        state.restart(registered.clone());
        self.out.hooks.push(name.clone());
        if let HookConnection::Invalid(_) = registered.connection {
            // No driver will try it.
            state.tell(&self.out);
        }
        let wakeup = state.wakeup.clone();
        self.call_back(name);
        wakeup
    }

    /// Removes the registration of `hook`. Its questions stay until their pods are reconciled, but not its answers: a hook
    /// that is registered under the same name later has not given them.
    pub(crate) fn deregister(&mut self, hook: &str) {
        self.recent.forget_hook(hook);
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.registered = None;
        for (id, entry) in self.questions.iter_mut().filter(|(_, entry)| entry.question.hook == hook) {
            entry.answer = None;
            if entry.place == QuestionState::Out {
                entry.place = state.queue.line_up(*id);
                state.open += 1;
            }
        }
        if state.is_unused() {
            self.hooks.remove(hook);
        } else {
            self.call_back(hook);
        }
        self.out.metrics.forget(hook);
    }

    /// Queues the questions in flight again.
    fn call_back(&mut self, hook: &str) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        for (id, entry) in self.questions.iter_mut().filter(|(_, entry)| entry.question.hook == hook) {
            if let QuestionState::InFlight { .. } = entry.place {
                entry.cancel.cancel();
                entry.place = state.queue.line_up(*id);
            }
        }
        state.count(&self.out.metrics);
        state.wakeup.notify_one();
    }

    /// Counts a probe that [`QuestionTable::next`] did not return.
    pub(crate) fn began(&mut self, hook: &str) {
        if let Some(state) = self.hooks.get_mut(hook) {
            state.queue.began();
        }
    }

    /// Returns the health of `hook`; `None` if the table does not know it.
    pub(crate) fn health(&self, hook: &str) -> Option<HookHealth> {
        self.hooks.get(hook).map(HookState::health)
    }

    /// Cancels all calls and removes all questions.
    pub(crate) fn clear(&mut self) {
        self.questions.values().for_each(|entry| entry.cancel.cancel());
        *self = QuestionTable::new(self.out.clone());
    }
}

#[cfg(test)]
mod tests;
