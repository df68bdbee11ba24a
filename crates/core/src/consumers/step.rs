//! The steps of a round, one after the other until none of them changes anything.

use crate::advance::advance;
use crate::busy::BUSY_EVIDENCE;
use crate::gate::{gate_is_off, gate_to_write};
use crate::hooks::{GateTiming, Phase, is_hook_finalizer};
use crate::keys::{ASKED, AVAILABLE_CONDITIONS, EVIDENCE, REFUSED, Stage};
use crate::operations::Operations;
use crate::patch::LabelChanges;
use crate::plan::{CheckResult, Checks, Plan, plan_labels};
use crate::refusals::{Objection, Refusals};
use crate::time::UnixNanos;
use crate::view::{ConditionStatus, PodView};

use super::draft::is_out;
use super::marks::{Asked, Marks};
use super::results::Heard;
use super::round::Round;
use super::{Consumers, FinalizerChanges, HookEvent};

/// Each pass moves something forward that doesn't come back within a round: an operation, a finalizer, the gate.
const PASSES: usize = 64;

/// Everybody's checks, rules and hooks side by side: whoever refuses is named.
struct Consulted<'c> {
    rules: &'c dyn Checks,
    pre: Heard,
    post: Heard,
}

fn both(rules: CheckResult, hooks: Option<&String>) -> CheckResult {
    match (rules, hooks) {
        (CheckResult::Pass, Some(reason)) => CheckResult::Wait(reason.clone()),
        (CheckResult::Wait(first), Some(reason)) => CheckResult::Wait(format!("{first}; {reason}")),
        (result, _) => result,
    }
}

impl Checks for Consulted<'_> {
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult {
        both(self.rules.pre_check(id, operation_type), self.pre.waiting.get(id))
    }

    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult {
        both(self.rules.post_check(id, operation_type), self.post.waiting.get(id))
    }

    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection> {
        let mut all = self.rules.objections(id, operation_type);
        all.extend(self.post.objections.get(id).into_iter().flatten().cloned());
        all
    }
}

impl Round<'_> {
    pub(crate) fn run(mut self, checks: &dyn Checks) -> Plan {
        if !self.pod.terminating {
            self.stop_waiting();
        }
        self.release();
        let releases = self.open.len();
        self.released = self.draft.clone();
        if !self.pod.terminating {
            for _ in 0..PASSES {
                self.open.truncate(releases);
                self.kept.clear();
                if !self.pass(checks) {
                    break;
                }
            }
        }
        self.conclude()
    }

    /// Takes everything of hooks off the pod.
    pub(crate) fn abandon(mut self) -> Plan {
        self.consumers = Consumers { hooks: &[], ..self.consumers };
        let held: Vec<String> =
            self.draft.finalizers.iter().filter(|name| is_hook_finalizer(name)).cloned().collect();
        for finalizer in held {
            let name = self.name_of(&finalizer);
            self.note_of(&name, Phase::Release, UnixNanos::default(), HookEvent::Released);
            self.draft.remove(&finalizer);
        }
        self.draft.marks = Marks::default();
        self.conclude()
    }

    /// Takes the steps of the operations, which end by themselves, then those of hooks and gate. Tells whether the latter did
    /// something, so that there may be more to do.
    fn pass(&mut self, checks: &dyn Checks) -> bool {
        let now = self.now;
        self.take(&|pod| advance(None, pod, now));
        let pre = self.check(Phase::PreCheck);
        let post = self.check(Phase::PostCheck);
        let checks = Consulted { rules: checks, pre, post };
        if self.undo_cancelled() {
            return true;
        }
        self.take(&|pod| plan_labels(pod, &checks, now));
        self.refuse(&checks);
        let before = (self.draft.finalizers.clone(), self.draft.gate, self.draft.marks.clone());
        self.turn_off();
        self.prepare();
        if self.undo_cancelled() {
            return true;
        }
        self.complete();
        self.turn_on();
        before != (self.draft.finalizers.clone(), self.draft.gate, self.draft.marks.clone())
    }

    /// The pod as it is to be, with the expectations that go with it.
    fn expecting(&mut self) -> PodView<'_> {
        let names = self.expected_hooks();
        self.draft.expect(self.pod.available_conditions, names);
        self.draft.view(&self.pod)
    }

    /// The hooks to name as expected: those that hold pods like this one, and those that still do though they shouldn't.
    fn expected_hooks(&self) -> Vec<String> {
        let mut names: Vec<String> = self.holders().map(|hook| hook.name.clone()).collect();
        let leftovers = self
            .named
            .iter()
            .filter(|name| self.consumers.known.get(name).is_some() && self.draft.is_held_by(name));
        for name in leftovers {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Takes a step of the operations. If it takes the pod out of service, hooks that may send it traffic without holding it, because
    /// they haven't answered that they took it in, or came later, hold it from then on: it is better to ask them than to assume.
    fn take(&mut self, step: &dyn Fn(&PodView<'_>) -> LabelChanges) {
        let mut labels = self.draft.labels.clone();
        step(&self.expecting()).apply(&mut labels);
        let holds_gate = Operations::parse(&labels)
            .iter()
            .any(|(_, operation)| operation.has_any(&[Stage::Preparing, Stage::Operate]));
        if holds_gate && self.hold() {
            step(&self.expecting()).apply(&mut self.draft.labels);
        } else {
            self.draft.labels = labels;
        }
    }

    /// Makes hooks hold the pod, if it is in service or was until now. Tells whether there were any.
    fn hold(&mut self) -> bool {
        let is_granted = self.draft.operations().iter().any(|(_, op)| op.has(Stage::Operate));
        let starts = !is_out(&Operations::parse(self.pod.labels)) && !is_out(&self.draft.operations());
        let keeps_serving = !gate_is_off(&self.draft.view(&self.pod)) && !is_granted;
        if starts {
            self.draft.evidence.clear();
            self.draft.marks.0.retain(|_, mark| mark.phase != Asked::LetGo);
        } else if !keeps_serving {
            return false;
        }
        let before = self.draft.finalizers.len();
        for hook in self.holders().filter(|hook| hook.takes_part_in(Phase::Prepare)) {
            if !self.draft.marks.is(&hook.name, Asked::LetGo) && !self.is_held_by(hook) {
                self.draft.add(&hook.name);
                self.draft.marks.since(&hook.name, Asked::Held, self.now);
            }
        }
        self.draft.finalizers.len() != before
    }

    /// Turns the gate off, when an operation needs it off and nobody has to let go before.
    fn turn_off(&mut self) {
        let view = self.draft.view(&self.pod);
        let operations = self.draft.operations();
        if gate_to_write(&view, &operations) != Some(ConditionStatus::False) {
            return;
        }
        let is_granted = operations.iter().any(|(_, operation)| operation.has(Stage::Operate));
        let mut before = self.holders().filter(|hook| {
            hook.takes_part_in(Phase::Prepare) && hook.prepare_timing == GateTiming::BeforeGate
        });
        if is_granted || !before.any(|hook| self.is_held_by(hook)) {
            self.draft.gate = Some(ConditionStatus::False);
            self.draft.gate_since = Some(whole_seconds(self.now));
            self.draft.marks.0.retain(|_, mark| mark.phase != Asked::LetGo);
        }
    }

    /// Turns the gate on, when the pod is to be in service and everybody who has to take it in before has done so. Not in the write
    /// that ends an operation which held it: whoever watches sees the operation end first.
    fn turn_on(&mut self) {
        let view = self.draft.view(&self.pod);
        if gate_to_write(&view, &self.draft.operations()) != Some(ConditionStatus::True) {
            return;
        }
        let holds_gate = |operations: &Operations<'_>| {
            operations.iter().any(|(_, operation)| operation.has_any(&[Stage::Preparing, Stage::Operate]))
        };
        let all_in = self
            .holders()
            .filter(|hook| {
                hook.takes_part_in(Phase::Complete) && hook.complete_timing == GateTiming::BeforeGate
            })
            .all(|hook| self.is_held_by(hook) && !self.draft.marks.leaves_in_doubt(&hook.name));
        if all_in && !holds_gate(&Operations::parse(self.pod.labels)) {
            self.draft.gate = Some(ConditionStatus::True);
            self.draft.gate_since = Some(whole_seconds(self.now));
        }
    }

    /// Undoes what deadlines have cancelled, as if it had never been there. Tells whether there was anything.
    fn undo_cancelled(&mut self) -> bool {
        let cancelled = std::mem::take(&mut self.cancelled);
        if cancelled.is_empty() {
            return false;
        }
        for id in &cancelled {
            self.released.undo(id);
        }
        self.draft = self.released.clone();
        true
    }

    fn conclude(mut self) -> Plan {
        let names = self.expected_hooks();
        if !self.pod.terminating {
            self.draft.expect(self.pod.available_conditions, names.clone());
        }
        // A doubt that an answer has ended is ended on the pod, or the next process would have it again.
        let stored = Marks::parse(self.pod.facts.asked);
        let is_settled = stored.0.keys().any(|hook| !self.draft.marks.0.contains_key(hook));
        let told = Refusals::parse(self.pod.facts.refused);
        let is_retold = !self.pod.terminating && !told.are_by_the_same(&self.draft.refusals);
        let stale = self.forget() || is_settled || is_retold;
        let labels = LabelChanges::between(self.pod.labels, &self.draft.labels);
        let gate = self.draft.gate.filter(|gate| self.pod.gate != Some(*gate));
        let finalizers = self.finalizers();
        let asks_anew = self.asks_anew(&stored);
        let writes = !labels.is_empty()
            || gate.is_some()
            || !finalizers.is_empty()
            || stale
            || asks_anew
            || self.must_expect(&names);
        let annotations = if writes { self.annotations() } else { Vec::new() };
        let operations = self.draft.operations();
        let refused = self.draft.refusals.beyond(&told, &operations);
        let waits = |id: &str| {
            operations.get(id).is_some_and(|operation| {
                (operation.has(Stage::PreCheck) && !operation.has(Stage::PreChecked))
                    || (operation.has(Stage::PostCheck) && !operation.has(Stage::PostChecked))
            })
        };
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|question| question.operations.iter().any(|(id, _)| waits(id)));
        Plan {
            labels,
            gate,
            finalizers,
            annotations,
            open: self.open,
            kept,
            notes: self.notes,
            refused,
            wake: self.wake,
            now: self.now,
            refusals: self.draft.refusals.text(),
            expected: self.draft.expected,
        }
    }

    fn finalizers(&self) -> FinalizerChanges {
        let (before, after) = (self.pod.finalizers, &self.draft.finalizers);
        let missing = |from: &[String], name: &String| !from.contains(name);
        FinalizerChanges {
            add: after.iter().filter(|name| missing(before, name)).cloned().collect(),
            remove: before.iter().filter(|name| missing(after, name)).cloned().collect(),
        }
    }

    /// Forgets what was asked of hooks, or answered by them, that has no meaning any more. Tells whether something is left on the pod
    /// of hooks that are gone; the rest goes with the next write.
    fn forget(&mut self) -> bool {
        let open: Vec<String> = self.open.iter().map(|open| open.question.hook.clone()).collect();
        let is_leaving = !self.draft.operations().iter().all(|(_, op)| !op.has(Stage::Preparing));
        let holding: Vec<String> =
            self.holders().filter(|hook| self.is_held_by(hook)).map(|hook| hook.name.clone()).collect();
        let known = self.consumers.known;
        let gone = |name: &str| known.get(name).is_none();
        let had = self.draft.marks.0.keys().any(|name| gone(name));
        self.draft.marks.0.retain(|name, mark| match mark.phase {
            _ if gone(name) => false,
            _ if open.contains(name) => true,
            Asked::LetGo => is_leaving,
            _ => holding.contains(name),
        });
        let before = self.draft.evidence.clone();
        self.draft.evidence.retain(|name| name == BUSY_EVIDENCE || !gone(name));
        had || before != self.draft.evidence
    }

    /// Whether a question comes up whose time isn't on the pod yet.
    fn asks_anew(&self, stored: &Marks) -> bool {
        let marks = self.draft.marks.0.iter();
        marks
            .filter(|(name, _)| self.open.iter().any(|open| &open.question.hook == *name))
            .any(|(name, mark)| stored.0.get(name) != Some(mark))
    }

    /// Whether the expected finalizers have to be corrected for their own sake: an entry that can't be met any more, or one that is
    /// missing while an operation goes on, which the webhook would end without it. Otherwise the correction goes with the next write.
    fn must_expect(&self, names: &[String]) -> bool {
        if self.pod.terminating || self.draft.expected.as_deref() == self.pod.available_conditions {
            return false;
        }
        let stored = &self.named;
        let only_misses = stored.iter().all(|name| names.contains(name)) && stored.len() < names.len();
        !only_misses || self.draft.operations().any_live()
    }

    fn annotations(&self) -> Vec<(&'static str, Option<String>)> {
        let facts = self.pod.facts;
        let mut changes = vec![
            (EVIDENCE, self.draft.evidence.text(), facts.evidence),
            (ASKED, self.draft.marks.text(), facts.asked),
        ];
        if !self.pod.terminating {
            changes.push((REFUSED, self.draft.refusals.text(), facts.refused));
            changes.push((AVAILABLE_CONDITIONS, self.draft.expected.clone(), self.pod.available_conditions));
        }
        let found: Vec<(&'static str, Option<String>)> = changes
            .into_iter()
            .filter(|(_, text, stored)| text.as_deref() != *stored)
            .map(|(key, text, _)| (key, text))
            .collect();
        found
    }
}

/// Times of conditions have whole seconds.
fn whole_seconds(time: UnixNanos) -> UnixNanos {
    UnixNanos(time.0 - time.0.rem_euclid(1_000_000_000))
}
