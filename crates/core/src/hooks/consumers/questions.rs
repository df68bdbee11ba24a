//! The open questions of a round, and the effect of their answers on finalizers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hooks::hook::{GateTiming, Hook, HookPhase};
use crate::hooks::set::HookSet;
use crate::model::hook_keys::hook_finalizer;
use crate::model::keys::{SERVICE_AVAILABLE, Stage};
use crate::model::operations::Operation;
use crate::model::time::UnixNanos;
use crate::model::view::ConditionStatus;
use crate::protocol::gate::{desired_gate, gate_is_off};

use super::requests::HookRequestState;
use super::results::CheckAnswers;
use super::round::{HookRound, QuestionVerdict};
use crate::hooks::report::HookEvent;

impl HookRound<'_> {
    /// Asks hooks to forget the pod when it terminates, has finished or no longer matches them. Removes the finalizers of
    /// unregistered hooks.
    pub(crate) fn release(&mut self) {
        self.hold_for_former_hooks();
        self.hold_for_adding_hooks();
        let known: &HookSet = self.consumers.known;
        for finalizer in self.hook_finalizers() {
            let Some(hook) = known.owner_of(&finalizer) else {
                let name = self.name_of(&finalizer);
                self.note_of(&name, HookPhase::Release, UnixNanos::default(), HookEvent::Removed);
                self.draft.remove(&finalizer);
                continue;
            };
            if !self.has_ended() && self.is_holder(&hook.name) {
                continue;
            }
            if !hook.takes_part_in(HookPhase::Release) {
                if !self.has_ended() {
                    self.note_of(&hook.name, HookPhase::Release, UnixNanos::default(), HookEvent::Released);
                }
                self.draft.remove(&finalizer);
                continue;
            }
            let since = self.release_since(hook);
            let question = self.question(hook, HookPhase::Release, Vec::new(), since);
            if let QuestionVerdict::Done(_) = self.put(hook, question) {
                self.draft.remove(&finalizer);
            }
        }
    }

    /// Adds the finalizers of hooks that no longer match the pod while they may be adding it to traffic, so that they are
    /// asked to forget it. From then on the pod does not wait for them to add it.
    fn hold_for_former_hooks(&mut self) {
        let view = self.draft.view(&self.pod);
        if self.has_ended() || desired_gate(&view, &self.draft.operations()) != Some(true) {
            return;
        }
        let (known, answers) = (self.consumers.known, self.consumers.answers);
        let is_former = |hook: &&Arc<Hook>| {
            hook.takes_part_in(HookPhase::Complete)
                && hook.takes_part_in(HookPhase::Release)
                && !self.is_holder(&hook.name)
                && !self.is_held_by(hook)
                // A pod in service does not name a hook before it has answered.
                && (self.named.contains(&hook.name)
                    || answers.withhold_unless_asked(&hook.name, HookPhase::Complete))
        };
        let former: Vec<String> = known.iter().filter(is_former).map(|hook| hook.name.clone()).collect();
        self.named.retain(|name| !former.contains(name));
        former.iter().for_each(|name| self.draft.add(name));
    }

    /// Adds the finalizers of hooks that may be adding a pod to traffic that has finished, so that they are asked to
    /// forget it.
    fn hold_for_adding_hooks(&mut self) {
        if self.pod.terminating || !self.pod.facts.finished {
            return;
        }
        let (known, answers) = (self.consumers.known, self.consumers.answers);
        for hook in known.iter().filter(|hook| hook.takes_part_in(HookPhase::Release)) {
            if answers.withhold_unless_asked(&hook.name, HookPhase::Complete) {
                self.draft.add(&hook.name);
            }
        }
    }

    /// Reports unregistered hooks that were expected to add the pod to traffic.
    pub(crate) fn stop_waiting(&mut self) {
        let gone = |name: &&String| self.consumers.known.get(name).is_none() && !self.draft.is_held_by(name);
        let gone: Vec<String> = self.named.iter().filter(gone).cloned().collect();
        for name in gone {
            self.note_of(&name, HookPhase::Complete, UnixNanos::default(), HookEvent::Removed);
        }
    }

    /// Returns the name of the hook with this finalizer, or the finalizer when the pod does not name the hook.
    pub(crate) fn name_of(&self, finalizer: &str) -> String {
        let mut named = self.named.iter();
        named
            .find(|hook| hook_finalizer(hook) == finalizer)
            .map_or_else(|| finalizer.to_owned(), String::clone)
    }

    /// Asks whether operations may start (`PreCheck`) or whether their results are accepted (`PostCheck`).
    pub(crate) fn check(&mut self, phase: HookPhase) -> CheckAnswers {
        let (asked, answered) = match phase {
            HookPhase::PreCheck => (Stage::PreCheck, Stage::PreChecked),
            _ => (Stage::PostCheck, Stage::PostChecked),
        };
        let mut waiting: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut answers = CheckAnswers::default();
        for (since, operations) in self.to_check(asked, answered) {
            let concerned = |hook: &&Arc<Hook>| {
                hook.takes_part_in(phase) && operations.iter().any(|(_, type_)| hook.checks_type(type_))
            };
            let mut hooks: Vec<&Arc<Hook>> = self.consumers.hooks.iter().filter(concerned).collect();
            hooks.sort_by_key(|hook| hook.order);
            let mut blocked_at = None;
            for hook in hooks {
                let theirs: Vec<(String, String)> =
                    operations.iter().filter(|(_, type_)| hook.checks_type(type_)).cloned().collect();
                if blocked_at.is_some_and(|order| order < hook.order) {
                    // The hook is not asked yet, or not again: an earlier refusal stands.
                    answers.object(phase, hook, &theirs, None);
                    continue;
                }
                let question = self.question(hook, phase, theirs.clone(), since);
                let verdict = self.put(hook, question.clone());
                if let QuestionVerdict::Done(_) = verdict {
                    self.kept.push(question);
                    continue;
                }
                blocked_at = Some(hook.order);
                let refusal = self.open.last().filter(|open| open.rejected).map(|open| open.message.clone());
                answers.object(phase, hook, &theirs, refusal);
                for (id, _) in theirs {
                    if verdict == QuestionVerdict::Cancel {
                        self.cancelled.insert(id);
                    } else {
                        let waits = format!("waits for hook {}", hook.name);
                        waiting.entry(id).or_default().push(waits);
                    }
                }
            }
        }
        answers.waiting = waiting.into_iter().map(|(id, reasons)| (id, reasons.join("; "))).collect();
        answers
    }

    /// Returns the operations that wait for a check, by the time at which the check began. One question may cover
    /// several operations. A request that is made again (`CheckRequest::asked_again_at`) keeps its microsecond, and so its
    /// question and the answer.
    fn to_check(&self, asked: Stage, answered: Stage) -> BTreeMap<UnixNanos, Vec<(String, String)>> {
        let mut found: BTreeMap<UnixNanos, Vec<(String, String)>> = BTreeMap::new();
        for (id, operation) in self.draft.operations().iter() {
            let waits = operation.has(asked) && !operation.has(answered);
            let (true, Some(operation_type)) = (waits, operation.known_type()) else {
                continue;
            };
            let since = self.draft.labels.get(&asked.key(id)).and_then(|value| value.parse().ok());
            let since = UnixNanos(since.unwrap_or_default()).whole_micros();
            let operations = found.entry(since).or_default();
            operations.push((id.to_owned(), operation_type.to_owned()));
        }
        found
    }

    /// Asks the hooks that use the pod to release it for the operations that take it out of service.
    pub(crate) fn prepare(&mut self) {
        if self.has_ended() {
            // They are asked to forget it.
            return;
        }
        let mut operations = self.operations_with(&[Stage::Preparing]);
        if operations.is_empty() {
            // A hook that begins to use the pod while an operator works must release it, too.
            operations = self.operations_with(&[Stage::Operate]);
        }
        if operations.is_empty() {
            return;
        }
        let held: Vec<&Arc<Hook>> = self.holders().filter(|hook| self.is_held_by(hook)).collect();
        let gate_is_off = gate_is_off(&self.draft.view(&self.pod));
        let (asked, silent): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|hook| hook.takes_part_in(HookPhase::Prepare));
        if gate_is_off {
            silent.into_iter().for_each(|hook| self.draft.remove(&hook_finalizer(&hook.name)));
        }
        let (before, after): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|hook| hook.prepare_timing == GateTiming::BeforeGate);
        let wave = match (before.is_empty(), gate_is_off) {
            (false, _) => before,
            (true, true) => after,
            (true, false) => return,
        };
        let Some(order) = wave.iter().map(|hook| hook.order).min() else {
            return;
        };
        for hook in wave.into_iter().filter(|hook| hook.order == order) {
            let since = self.prepare_since(hook);
            let question = self.question(hook, HookPhase::Prepare, operations.clone(), since);
            match self.put(hook, question) {
                QuestionVerdict::Open => {}
                QuestionVerdict::Cancel => self.cancelled.extend(operations.iter().map(|(id, _)| id.clone())),
                QuestionVerdict::Done(evidence) => {
                    self.draft.remove(&hook_finalizer(&hook.name));
                    self.draft.evidence.released(&hook.name, &evidence);
                    self.draft.marks.0.remove(&hook.name);
                    if !gate_is_off {
                        self.draft.marks.since(&hook.name, HookRequestState::Drained, self.now);
                    }
                }
            }
        }
    }

    /// Asks the hooks that do not use the pod to add it to traffic, if it is to be in service.
    pub(crate) fn complete(&mut self) {
        let view = self.draft.view(&self.pod);
        if self.has_ended() || desired_gate(&view, &self.draft.operations()) != Some(true) {
            return;
        }
        let is_in = |hook: &Hook, round: &Self| {
            round.is_held_by(hook) && !round.draft.marks.leaves_in_doubt(&hook.name)
        };
        let missing: Vec<&Arc<Hook>> = self.holders().filter(|hook| !is_in(hook, self)).collect();
        let (asked, silent): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|hook| hook.takes_part_in(HookPhase::Complete));
        if gate_is_on(self.draft.gate, self.pod.has_gate) {
            for hook in silent {
                self.draft.add(&hook.name);
                self.draft.marks.0.remove(&hook.name);
            }
        }
        let (before, after): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|hook| hook.complete_timing == GateTiming::BeforeGate);
        if self.pod.facts.containers_ready || self.pod.ready {
            self.take_in(before, GateTiming::BeforeGate);
        }
        // `Ready` belongs to the stored pod: it is not evidence for a gate that turns on in this write.
        if gate_is_on(self.pod.gate, self.pod.has_gate) && self.pod.ready {
            self.take_in(after, GateTiming::AfterGate);
        }
    }

    fn take_in(&mut self, wave: Vec<&Arc<Hook>>, timing: GateTiming) {
        let Some(order) = wave.iter().map(|hook| hook.order).max() else {
            return;
        };
        let of_wave =
            |hook: &&Arc<Hook>| hook.takes_part_in(HookPhase::Complete) && hook.complete_timing == timing;
        let is_first = !self.holders().filter(of_wave).any(|hook| hook.order > order);
        // Nothing waits for the hooks of a pod in service, so one that does not answer must not delay the others.
        let serves = self.draft.labels.contains_key(SERVICE_AVAILABLE);
        for hook in wave.into_iter().filter(|hook| serves || hook.order == order) {
            let question = self.complete_question(hook, is_first);
            if let QuestionVerdict::Done(evidence) = self.put(hook, question) {
                self.draft.add(&hook.name);
                self.draft.evidence.added(&hook.name, &evidence);
                self.draft.marks.0.remove(&hook.name);
            }
        }
    }

    /// Returns id and type of the operations that have one of `stages`.
    pub(crate) fn operations_with(&self, stages: &[Stage]) -> Vec<(String, String)> {
        let operations = self.draft.operations();
        let found =
            operations.iter().filter(|(_, operation): &(&str, &Operation<'_>)| operation.has_any(stages));
        let type_of = |id: &str| operations.type_name(id);
        found.map(|(id, _)| (id.to_owned(), type_of(id))).collect()
    }
}

/// Returns whether the gate lets the pod serve.
pub(crate) fn gate_is_on(gate: Option<ConditionStatus>, has_gate: bool) -> bool {
    gate.map_or(!has_gate, |gate| gate == ConditionStatus::True)
}
