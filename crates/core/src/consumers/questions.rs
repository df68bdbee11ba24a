//! Which questions are open in the state that a round has come to, and what becomes of the finalizers when they are answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::gate::{desired_gate, gate_is_off};
use crate::hooks::{GateTiming, Hook, HookSet, Phase, finalizer_of, is_hook_finalizer};
use crate::keys::Stage;
use crate::operations::{Operation, UNKNOWN_TYPE};
use crate::time::UnixNanos;
use crate::view::ConditionStatus;

use super::HookEvent;
use super::marks::Asked;
use super::results::Heard;
use super::round::{Round, Verdict};

impl Round<'_> {
    /// Asks the hooks that don't hold pods like this one, or whose pod is going, to forget it; takes away what is left of those that
    /// are gone.
    pub(crate) fn release(&mut self) {
        let finalizers: Vec<String> =
            self.draft.finalizers.iter().filter(|name| is_hook_finalizer(name)).cloned().collect();
        let known: &HookSet = self.consumers.known;
        for finalizer in finalizers {
            let Some(hook) = known.owner_of(&finalizer) else {
                let name = self.name_of(&finalizer);
                self.note_of(&name, Phase::Release, UnixNanos::default(), HookEvent::Removed);
                self.draft.remove(&finalizer);
                continue;
            };
            if !self.pod.terminating && self.is_holder(&hook.name) {
                continue;
            }
            if !hook.takes_part_in(Phase::Release) {
                if !self.pod.terminating {
                    self.note_of(&hook.name, Phase::Release, UnixNanos::default(), HookEvent::Released);
                }
                self.draft.remove(&finalizer);
                continue;
            }
            let since = self.release_since(hook);
            let question = self.question(hook, Phase::Release, Vec::new(), since);
            if let Verdict::Done(_) = self.put(hook, question) {
                self.draft.remove(&finalizer);
            }
        }
    }

    /// Says of hooks that are gone, and were waited for to take the pod in, that they are not any more.
    pub(crate) fn stop_waiting(&mut self) {
        let gone = |name: &&String| self.consumers.known.get(name).is_none() && !self.draft.is_held_by(name);
        let gone: Vec<String> = self.named.iter().filter(gone).cloned().collect();
        for name in gone {
            self.note_of(&name, Phase::Complete, UnixNanos::default(), HookEvent::Removed);
        }
    }

    /// The name of the hook that had this finalizer, as far as the pod tells.
    pub(crate) fn name_of(&self, finalizer: &str) -> String {
        let mut named = self.named.iter();
        named.find(|hook| finalizer_of(hook) == finalizer).map_or_else(|| finalizer.to_owned(), String::clone)
    }

    /// Asks whether operations may start (`PreCheck`), or whether their results are good (`PostCheck`).
    pub(crate) fn check(&mut self, phase: Phase) -> Heard {
        let (asked, answered) = match phase {
            Phase::PreCheck => (Stage::PreCheck, Stage::PreChecked),
            _ => (Stage::PostCheck, Stage::PostChecked),
        };
        let mut waiting: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut heard = Heard::default();
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
                    // Its turn hasn't come (again): what it has refused before stays refused.
                    heard.object(phase, hook, &theirs, None);
                    continue;
                }
                let question = self.question(hook, phase, theirs.clone(), since);
                let verdict = self.put(hook, question.clone());
                if let Verdict::Done(_) = verdict {
                    self.kept.push(question);
                    continue;
                }
                blocked_at = Some(hook.order);
                let refusal = self.open.last().filter(|open| open.rejected).map(|open| open.message.clone());
                heard.object(phase, hook, &theirs, refusal);
                for (id, _) in theirs {
                    if verdict == Verdict::Cancel {
                        self.cancelled.insert(id);
                    } else {
                        let waits = format!("waits for hook {}", hook.name);
                        waiting.entry(id).or_default().push(waits);
                    }
                }
            }
        }
        heard.waiting = waiting.into_iter().map(|(id, reasons)| (id, reasons.join("; "))).collect();
        heard
    }

    /// The operations that wait for a check, by when they began to: one question may be for several.
    fn to_check(&self, asked: Stage, answered: Stage) -> BTreeMap<UnixNanos, Vec<(String, String)>> {
        let mut found: BTreeMap<UnixNanos, Vec<(String, String)>> = BTreeMap::new();
        for (id, operation) in self.draft.operations().iter() {
            let waits = operation.has(asked) && !operation.has(answered);
            let (true, Some(operation_type)) = (waits, operation.known_type()) else {
                continue;
            };
            let since = self.draft.labels.get(&asked.key(id)).and_then(|value| value.parse().ok());
            let operations = found.entry(UnixNanos(since.unwrap_or_default())).or_default();
            operations.push((id.to_owned(), operation_type.to_owned()));
        }
        found
    }

    /// Asks the hooks that hold the pod to let go of it for the operations that take it out of service.
    pub(crate) fn prepare(&mut self) {
        let mut operations = self.operations_with(&[Stage::Preparing]);
        if operations.is_empty() {
            // Who comes to hold a pod while it is worked on has to let go, too.
            operations = self.operations_with(&[Stage::Operate]);
        }
        if operations.is_empty() {
            return;
        }
        let held: Vec<&Arc<Hook>> = self.holders().filter(|hook| self.is_held_by(hook)).collect();
        let gate_is_off = gate_is_off(&self.draft.view(&self.pod));
        let (asked, silent): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|hook| hook.takes_part_in(Phase::Prepare));
        if gate_is_off {
            silent.into_iter().for_each(|hook| self.draft.remove(&finalizer_of(&hook.name)));
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
            let question = self.question(hook, Phase::Prepare, operations.clone(), since);
            match self.put(hook, question) {
                Verdict::Open => {}
                Verdict::Cancel => self.cancelled.extend(operations.iter().map(|(id, _)| id.clone())),
                Verdict::Done(evidence) => {
                    self.draft.remove(&finalizer_of(&hook.name));
                    self.draft.evidence.let_go(&hook.name, &evidence);
                    self.draft.marks.0.remove(&hook.name);
                    if !gate_is_off {
                        self.draft.marks.since(&hook.name, Asked::LetGo, self.now);
                    }
                }
            }
        }
    }

    /// Asks the hooks that don't hold the pod to take it in, if it is to be in service.
    pub(crate) fn complete(&mut self) {
        let view = self.draft.view(&self.pod);
        if desired_gate(&view, &self.draft.operations()) != Some(true) {
            return;
        }
        let is_in = |hook: &Hook, round: &Self| {
            round.is_held_by(hook) && !round.draft.marks.leaves_in_doubt(&hook.name)
        };
        let missing: Vec<&Arc<Hook>> = self.holders().filter(|hook| !is_in(hook, self)).collect();
        let (asked, silent): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|hook| hook.takes_part_in(Phase::Complete));
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
        // Ready is of the stored pod: it says nothing of a gate that only turns on now.
        if gate_is_on(self.pod.gate, self.pod.has_gate) && self.pod.ready {
            self.take_in(after, GateTiming::AfterGate);
        }
    }

    fn take_in(&mut self, wave: Vec<&Arc<Hook>>, timing: GateTiming) {
        let Some(order) = wave.iter().map(|hook| hook.order).max() else {
            return;
        };
        let of_wave =
            |hook: &&Arc<Hook>| hook.takes_part_in(Phase::Complete) && hook.complete_timing == timing;
        let is_first = !self.holders().filter(of_wave).any(|hook| hook.order > order);
        for hook in wave.into_iter().filter(|hook| hook.order == order) {
            let question = self.complete_question(hook, is_first);
            if let Verdict::Done(evidence) = self.put(hook, question) {
                self.draft.add(&hook.name);
                self.draft.evidence.taken_in(&hook.name, &evidence);
                self.draft.marks.0.remove(&hook.name);
            }
        }
    }

    /// Id and type of the operations that have one of `stages`.
    pub(crate) fn operations_with(&self, stages: &[Stage]) -> Vec<(String, String)> {
        let operations = self.draft.operations();
        let found =
            operations.iter().filter(|(_, operation): &(&str, &Operation<'_>)| operation.has_any(stages));
        let type_of = |id: &str| operations.type_of(id).map_or_else(|| UNKNOWN_TYPE.to_owned(), Into::into);
        found.map(|(id, _)| (id.to_owned(), type_of(id))).collect()
    }
}

/// Whether the gate lets the pod serve.
pub(crate) fn gate_is_on(gate: Option<ConditionStatus>, has_gate: bool) -> bool {
    gate.map_or(!has_gate, |gate| gate == ConditionStatus::True)
}
