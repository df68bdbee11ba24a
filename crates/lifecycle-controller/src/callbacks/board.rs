//! The open questions of all pods, and what is known of their answers. It knows no clock and no network: drivers ask it what to do
//! next, and tell it what came of it.

mod hook;
mod settled;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::runtime::reflector::ObjectRef;
use podward_core::hooks::{Answer, Evidence, EvidenceLevel, Phase, Question};
use podward_proto::v1;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::circuit::TOLERATED;
use super::inbox::Inbox;
use super::metrics::HookMetrics;
use super::queue::{Place, QuestionId, Turn};
use super::registered::Registered;
use super::request;
use super::response::{Failure, FailureKind, Reply, after_rejection};
use crate::cached_pod::CachedPod;
use hook::HookState;
pub(super) use hook::Standing;
use settled::Settled;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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

    /// A call to `hook` has ended, after so long; without a result if it was cancelled.
    pub(super) fn ended(
        &mut self,
        hook: &str,
        call: (QuestionId, u32),
        result: Option<Result<Reply, Failure>>,
        took: Duration,
        now: Instant,
    ) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.queue.ended();
        let (id, attempt) = call;
        // It may have been closed at the very moment that the answer came.
        let entry = self.questions.get(&id).filter(|entry| entry.attempt == attempt);
        let was_probe = entry.is_some_and(|entry| entry.place == (Place::InFlight { probe: true }));
        let is_open = entry.is_some_and(|entry| matches!(entry.place, Place::InFlight { .. }));
        match result {
            None => {}
            Some(Ok(reply)) => {
                state.stats.answered(took);
                self.out.metrics.took(hook, took.as_secs_f64());
                if state.queue.circuit.answered() {
                    self.recovered(hook);
                }
                if is_open {
                    self.replied(id, reply, now);
                }
            }
            Some(Err(failure)) => {
                state.stats.last_error = Some(failure.text.clone());
                let has_broken = state.queue.circuit.failed(was_probe, &failure, now);
                if is_open {
                    self.not_replied(id, &failure, now);
                }
                self.went_wrong(hook, has_broken);
            }
        }
        if let Some(state) = self.hooks.get(hook) {
            state.tell(&self.out);
        }
    }

    fn replied(&mut self, id: QuestionId, reply: Reply, now: Instant) {
        let Some(entry) = self.questions.get_mut(&id) else { return };
        entry.failures = 0;
        let again = match &reply {
            Reply::Done(_) => None,
            Reply::Pending { retry, .. } => Some(*retry),
            Reply::Rejected { retry, .. } => {
                entry.rejections = entry.rejections.saturating_add(1);
                Some(after_rejection(*retry, entry.rejections))
            }
        };
        let answer = match reply {
            Reply::Done(evidence) => Answer::Done(evidence),
            Reply::Pending { message, .. } => Answer::Open { message },
            Reply::Rejected { reason, .. } => Answer::Rejected { reason },
        };
        // Up to a tenth later than it said, so that pods that were asked together are not for ever.
        let at = again.map(|again| now + again.mul_f64(1.0 + fastrand::f64() / 10.0));
        self.put(id, answer, at);
    }

    fn not_replied(&mut self, id: QuestionId, failure: &Failure, now: Instant) {
        let Some(entry) = self.questions.get_mut(&id) else { return };
        entry.failures = entry.failures.saturating_add(1);
        let Some(state) = self.hooks.get(&entry.question.hook) else { return };
        if state.ignores_failures() && entry.failures >= TOLERATED {
            return self.put(id, assumed(&failure.text), None);
        }
        let is_broken = state.queue.circuit.error().is_some() && failure.kind != FailureKind::Question;
        let doublings = entry.failures.saturating_sub(1).min(10);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
        // While the hook is out of reach, its circuit says when; then nobody is to wait for longer than that.
        let at = if is_broken { now } else { now + pause.mul_f64(0.5 + fastrand::f64()) };
        let answer = match &entry.answer {
            Some(rejected @ Answer::Rejected { .. }) => rejected.clone(),
            _ => Answer::Open { message: format!("it can't be reached: {}", failure.text) },
        };
        self.put(id, answer, Some(at));
    }

    /// Stores an answer; asked again at `again`, if at all.
    fn put(&mut self, id: QuestionId, answer: Answer, again: Option<Instant>) {
        let Some(entry) = self.questions.get_mut(&id) else { return };
        let Some(state) = self.hooks.get_mut(&entry.question.hook) else { return };
        state.queue.leave(id, entry.place);
        entry.place = match again {
            Some(at) => state.queue.defer(id, at),
            None => Place::Out,
        };
        let is_new = entry.answer.as_ref() != Some(&answer);
        entry.answer = Some(answer);
        if again.is_none() {
            state.open = state.open.saturating_sub(1);
            state.count(&self.out.metrics);
        }
        if is_new && let Some(asked) = self.pods.get(&entry.uid) {
            self.out.pods.push(ObjectRef::from_obj(&*asked.pod));
        }
    }

    /// The hook is reached again: those that failed because it was not need not wait any longer.
    fn recovered(&mut self, hook: &str) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        for id in state.queue.take_due(None) {
            let Some(entry) = self.questions.get_mut(&id) else { continue };
            let Place::Later(at) = entry.place else { continue };
            entry.place =
                if entry.failures > 0 { state.queue.line_up(id) } else { state.queue.defer(id, at) };
        }
        state.tell(&self.out);
    }

    /// After a failure: those that wait are let go if they may be, and told if it is new.
    fn went_wrong(&mut self, hook: &str, has_broken: bool) {
        let Some(state) = self.hooks.get(hook) else { return };
        if state.ignores_failures() && state.queue.circuit.is_given_up() {
            let answer = assumed(state.problem().unwrap_or_default());
            state.queue.waiting().into_iter().for_each(|id| self.put(id, answer.clone(), None));
        } else if has_broken {
            for id in state.queue.waiting() {
                let asked = self.questions.get(&id).and_then(|entry| self.pods.get(&entry.uid));
                if let Some(asked) = asked {
                    self.out.pods.push(ObjectRef::from_obj(&*asked.pod));
                }
            }
        }
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

    /// What a probe of the connection has found.
    pub(super) fn probed(&mut self, hook: &str, result: Result<(), Failure>, now: Instant) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.queue.ended();
        self.connection(hook, result, now);
    }

    /// Whether there is a connection now.
    pub(super) fn connection(&mut self, hook: &str, result: Result<(), Failure>, now: Instant) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.tried = true;
        self.out.hooks.push(hook.to_owned());
        match result {
            Ok(()) => {
                // A new stream is a new start; a new connection by itself answers nothing.
                let connects = state.connects();
                let circuit = &mut state.queue.circuit;
                let is_back = if connects { circuit.answered() } else { circuit.connected() };
                if is_back {
                    state.stats.last_error = None;
                    self.recovered(hook);
                }
            }
            Err(failure) => {
                state.stats.last_error = Some(failure.text.clone());
                let has_broken = match state.queue.circuit.error() {
                    Some(_) => state.queue.circuit.failed(true, &failure, now),
                    None => state.queue.circuit.break_now(&failure, now),
                };
                self.went_wrong(hook, has_broken);
            }
        }
        if let Some(state) = self.hooks.get(hook) {
            state.tell(&self.out);
            state.bell.notify_one();
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

fn assumed(error: &str) -> Answer {
    let detail =
        format!("gone on without it, as its failure policy is Ignore and it can't be reached: {error}");
    Answer::Done(Evidence { level: EvidenceLevel::Assumed, detail })
}

#[cfg(test)]
mod tests;
