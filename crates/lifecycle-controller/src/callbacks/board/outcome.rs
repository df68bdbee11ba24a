//! What comes of calls and connections, and what follows from it.

use std::time::{Duration, Instant};

use kube::runtime::reflector::ObjectRef;
use podward_core::hooks::{Answer, Evidence, EvidenceLevel};

use super::Board;
use crate::callbacks::circuit::TOLERATED;
use crate::callbacks::queue::{Place, QuestionId};
use crate::callbacks::response::{Failure, FailureKind, Reply, after_rejection};

/// Between two attempts at one question, growing with each that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Board {
    /// A call to `hook` has ended, after so long; without a result if it was cancelled.
    pub(in crate::callbacks) fn ended(
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
                state.tried = true;
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

    /// What a probe of the connection has found.
    pub(in crate::callbacks) fn probed(&mut self, hook: &str, result: Result<(), Failure>, now: Instant) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.queue.ended();
        self.connection(hook, result, now);
    }

    /// Whether there is a connection now.
    pub(in crate::callbacks) fn connection(&mut self, hook: &str, result: Result<(), Failure>, now: Instant) {
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
}

fn assumed(error: &str) -> Answer {
    let detail =
        format!("gone on without it, as its failure policy is Ignore and it can't be reached: {error}");
    Answer::Done(Evidence { level: EvidenceLevel::Assumed, detail })
}
