//! The results of calls and probes.

use std::time::{Duration, Instant};

use kube::runtime::reflector::ObjectRef;
use podward_core::hooks::{Evidence, EvidenceLevel, HookAnswer};
use podward_runtime::retry::{IDLE_PEER, delay_after, spread};

use super::QuestionTable;
use crate::questions::circuit_breaker::{CircuitBreaker, MAX_FAILURES};
use crate::questions::failure::{CallFailure, CallFailureKind};
use crate::questions::queue::{QuestionId, QuestionState};
use crate::questions::reply::{HookReply, after_rejection};

impl QuestionTable {
    /// Handles the end of a call to `hook` that took `took`. `result` is `None` if the call was cancelled.
    pub(crate) fn ended(
        &mut self,
        hook: &str,
        call: (QuestionId, u32),
        result: Option<Result<HookReply, CallFailure>>,
        took: Duration,
        now: Instant,
    ) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.queue.ended();
        let (id, attempt) = call;
        // The question may have been closed just before the answer arrived.
        let entry = self.questions.get(&id).filter(|entry| entry.attempt == attempt);
        let was_probe = entry.is_some_and(|entry| entry.place == (QuestionState::InFlight { probe: true }));
        let is_open = entry.is_some_and(|entry| matches!(entry.place, QuestionState::InFlight { .. }));
        match result.map(|result| state.noted(result, now)) {
            None => {}
            Some(Ok(reply)) => {
                state.tried = true;
                state.stats.answered(took);
                self.out.metrics.took(hook, took.as_secs_f64());
                if state.queue.circuit.answered() {
                    self.recovered(hook, now);
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

    fn replied(&mut self, id: QuestionId, reply: HookReply, now: Instant) {
        let Some(entry) = self.questions.get_mut(&id) else { return };
        entry.failures = 0;
        let again = match &reply {
            HookReply::Done(_) => None,
            HookReply::Pending { retry, .. } => Some(*retry),
            HookReply::Rejected { retry, .. } => {
                entry.rejections = entry.rejections.saturating_add(1);
                Some(after_rejection(*retry, entry.rejections))
            }
        };
        let answer = match reply {
            HookReply::Done(evidence) => HookAnswer::Done(evidence),
            HookReply::Pending { message, .. } => HookAnswer::Open { message },
            HookReply::Rejected { reason, .. } => HookAnswer::Rejected { reason },
        };
        // Up to a tenth later, so that questions that were sent together are spread.
        let at = again.map(|again| now + spread(again, 0.1));
        self.put(id, answer, at);
    }

    fn not_replied(&mut self, id: QuestionId, failure: &CallFailure, now: Instant) {
        let Some(entry) = self.questions.get_mut(&id) else { return };
        if failure.kind != CallFailureKind::Attaching {
            entry.failures = entry.failures.saturating_add(1);
        }
        if !failure.may_have_arrived {
            entry.lost = entry.lost.saturating_add(1);
        }
        let Some(state) = self.hooks.get(&entry.question.hook) else { return };
        if state.ignores_failures() && entry.failures >= MAX_FAILURES {
            return self.put(id, assumed(&failure.text), None);
        }
        let is_broken = state.queue.circuit.error().is_some() && failure.kind != CallFailureKind::Question;
        // While the hook is unreachable, the circuit breaker delays the calls; no other delay is added.
        let at = if is_broken { now } else { now + delay_after(IDLE_PEER, entry.failures) };
        let answer = match &entry.answer {
            Some(rejected @ HookAnswer::Rejected { .. }) => rejected.clone(),
            _ => HookAnswer::Open { message: format!("it can't be reached: {}", failure.text) },
        };
        self.put(id, answer, Some(at));
    }

    /// Stores an answer. The question is sent again at `again`; never if it is `None`.
    fn put(&mut self, id: QuestionId, answer: HookAnswer, again: Option<Instant>) {
        let Some(entry) = self.questions.get_mut(&id) else { return };
        let Some(state) = self.hooks.get_mut(&entry.question.hook) else { return };
        state.queue.leave(id, entry.place);
        entry.place = match again {
            Some(at) => state.queue.defer(id, at),
            None => QuestionState::Out,
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

    /// The hook is reachable again. Questions that failed before are queued now, unless they are withheld.
    fn recovered(&mut self, hook: &str, now: Instant) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        for id in state.queue.take_due(None) {
            let Some(entry) = self.questions.get_mut(&id) else { continue };
            let QuestionState::Later(at) = entry.place else { continue };
            let is_withheld = entry.withheld_until.is_some_and(|until| until > now);
            let is_due = entry.failures > 0 && !is_withheld;
            entry.place = if is_due { state.queue.line_up(id) } else { state.queue.defer(id, at) };
        }
        state.tell(&self.out);
    }

    /// After a failure: answers the waiting questions if the failure policy is Ignore; otherwise, if the circuit
    /// breaker has just opened, wakes their pods.
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

    /// Handles the result of a probe.
    pub(crate) fn probed(&mut self, hook: &str, result: Result<(), CallFailure>, now: Instant) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.queue.ended();
        // Questions show better than a probe whether the hook answers, if there are any.
        let close = if state.open == 0 { CircuitBreaker::checked } else { CircuitBreaker::connected };
        self.reached(hook, result, close, now);
    }

    /// Handles a new stream of a hook system, or the end of its last one.
    pub(crate) fn connection(&mut self, hook: &str, result: Result<(), CallFailure>, now: Instant) {
        self.reached(hook, result, CircuitBreaker::answered, now);
    }

    /// Handles the attempt to reach a hook without a question. If it was reached, `close` closes the circuit breaker, or
    /// returns false.
    fn reached(
        &mut self,
        hook: &str,
        result: Result<(), CallFailure>,
        close: fn(&mut CircuitBreaker) -> bool,
        now: Instant,
    ) {
        let Some(state) = self.hooks.get_mut(hook) else { return };
        state.tried = true;
        self.out.hooks.push(hook.to_owned());
        match state.noted(result, now) {
            Ok(()) => {
                if close(&mut state.queue.circuit) {
                    state.stats.last_error = None;
                    self.recovered(hook, now);
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
            state.wakeup.notify_one();
        }
    }
}

fn assumed(error: &str) -> HookAnswer {
    let detail =
        format!("gone on without it, as its failure policy is Ignore and it can't be reached: {error}");
    HookAnswer::Done(Evidence { level: EvidenceLevel::Assumed, detail })
}
