//! The steps of a round, repeated until nothing changes.

use crate::busy::{BUSY_EVIDENCE, DeletionCost, restore_cost};
use crate::hooks::hook::{GateTiming, HookPhase};
use crate::hooks::plan::PodPlan;
use crate::model::deletion_request::DeletionRequest;
use crate::model::hook_keys::is_hook_finalizer;
use crate::model::keys::{AVAILABLE_CONDITIONS, EVIDENCE, HOOK_REQUESTS, RESULT_REFUSED, Stage};
use crate::model::label_changes::LabelChanges;
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;
use crate::model::view::{ConditionStatus, PodView};
use crate::protocol::advance::advance;
use crate::protocol::checks::{CheckResult, Checks};
use crate::protocol::gate::{gate_is_off, gate_to_write};
use crate::protocol::objection::Objection;
use crate::protocol::plan_labels::plan_labels;
use crate::protocol::refusals::ResultRefusals;

use super::draft::is_out;
use super::requests::{HookRequestState, HookRequests};
use super::results::CheckAnswers;
use super::round::HookRound;
use crate::hooks::plan::FinalizerChanges;
use crate::hooks::pod_hooks::PodHooks;
use crate::hooks::report::HookEvent;

/// The limit of passes. Every pass advances something that does not go back within a round: an operation, a finalizer
/// or the gate.
const PASSES: usize = 64;

/// The checks of rules and hooks together, so that every check that refuses is named.
struct Consulted<'c> {
    rules: &'c dyn Checks,
    pre: CheckAnswers,
    post: CheckAnswers,
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

impl HookRound<'_> {
    pub(crate) fn run(mut self, checks: &dyn Checks) -> PodPlan {
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

    /// Returns the finalizers of present and former hooks.
    pub(crate) fn hook_finalizers(&self) -> Vec<String> {
        self.draft.finalizers.iter().filter(|name| is_hook_finalizer(name)).cloned().collect()
    }

    /// Removes everything of hooks from the pod, and restores its deletion cost.
    pub(crate) fn abandon(mut self) -> PodPlan {
        self.consumers = PodHooks { hooks: &[], ..self.consumers };
        for finalizer in self.hook_finalizers() {
            let name = self.name_of(&finalizer);
            self.note_of(&name, HookPhase::Release, UnixNanos::default(), HookEvent::Released);
            self.draft.remove(&finalizer);
        }
        self.draft.marks = HookRequests::default();
        let (facts, is_terminating) = (self.pod.facts, self.pod.terminating);
        let mut plan = self.conclude();
        if !is_terminating {
            let request = facts.deletion_request.and_then(DeletionRequest::parse);
            plan.annotations.extend(restore_cost(&DeletionCost::of(&facts, request.as_ref())));
        }
        plan
    }

    /// Applies the steps of the operations, then those of hooks and the gate. Returns whether hooks or the gate
    /// changed, so that another pass is needed.
    fn pass(&mut self, checks: &dyn Checks) -> bool {
        let now = self.now;
        self.take(&|pod| advance(None, pod, now));
        let pre = self.check(HookPhase::PreCheck);
        let post = self.check(HookPhase::PostCheck);
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

    /// Returns the view of the planned pod with its expectations.
    fn expecting(&mut self) -> PodView<'_> {
        let names = self.expected_hooks();
        self.draft.expect(self.pod.available_conditions, names);
        self.draft.view(&self.pod)
    }

    /// Returns the hooks to expect: those that match the pod, and former ones whose finalizer is still present.
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

    /// Applies a step of the operations. When it takes the pod out of service, it adds the finalizers of hooks that may
    /// use the pod without one, because they have not answered yet, came later, or lost it while the pod was opted out.
    /// It is safer to ask them.
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

    /// Adds the finalizers of hooks that have not released the pod since it was in service, unless an operation has its
    /// permission. Returns whether any was added.
    fn hold(&mut self) -> bool {
        if self.has_ended() {
            return false;
        }
        let is_granted = self.draft.operations().iter().any(|(_, op)| op.has(Stage::Operate));
        let starts = !is_out(&Operations::parse(self.pod.labels)) && !is_out(&self.draft.operations());
        let gate_is_off = gate_is_off(&self.draft.view(&self.pod));
        if starts {
            self.draft.evidence.clear();
            self.draft.marks.begin_round(self.now);
        } else if is_granted {
            return false;
        }
        let before = self.draft.finalizers.len();
        for hook in self.holders().filter(|hook| hook.takes_part_in(HookPhase::Prepare)) {
            // Evidence is of this round, unless the labels of the operation were written while the pod was opted out.
            // With the gate on it does not count.
            let has_released = self.draft.marks.is(&hook.name, HookRequestState::Drained)
                || (gate_is_off && self.draft.evidence.has_released(&hook.name));
            if !has_released && !self.is_held_by(hook) {
                self.draft.add(&hook.name);
                self.draft.marks.since(&hook.name, HookRequestState::Held, self.now);
            }
        }
        self.draft.finalizers.len() != before
    }

    /// Turns the gate off when an operation needs it off and every hook that is asked before the gate has released the
    /// pod.
    fn turn_off(&mut self) {
        let view = self.draft.view(&self.pod);
        let operations = self.draft.operations();
        if gate_to_write(&view, &operations) != Some(ConditionStatus::False) {
            return;
        }
        let is_granted = operations.iter().any(|(_, operation)| operation.has(Stage::Operate));
        let mut before = self.holders().filter(|hook| {
            hook.takes_part_in(HookPhase::Prepare) && hook.prepare_timing == GateTiming::BeforeGate
        });
        if is_granted || !before.any(|hook| self.is_held_by(hook)) {
            self.draft.gate = Some(ConditionStatus::False);
            self.draft.gate_since = Some(whole_seconds(self.now));
            self.draft.marks.0.retain(|_, mark| mark.phase != HookRequestState::Drained);
        }
    }

    /// Turns the gate on when the pod is to be in service and every hook that is asked before the gate has added it to
    /// traffic. Not in the write that ends an operation which held the gate: watchers see the end first. And not before the
    /// scheduler has bound a new pod: the two writes would meet, and nothing needs the gate earlier.
    fn turn_on(&mut self) {
        let view = self.draft.view(&self.pod);
        if view.gate.is_none() && view.facts.unscheduled {
            return;
        }
        if gate_to_write(&view, &self.draft.operations()) != Some(ConditionStatus::True) {
            return;
        }
        let holds_gate = |operations: &Operations<'_>| {
            operations.iter().any(|(_, operation)| operation.has_any(&[Stage::Preparing, Stage::Operate]))
        };
        let all_in = self
            .holders()
            .filter(|hook| {
                hook.takes_part_in(HookPhase::Complete) && hook.complete_timing == GateTiming::BeforeGate
            })
            .all(|hook| self.is_held_by(hook) && !self.draft.marks.leaves_in_doubt(&hook.name));
        if all_in && !holds_gate(&Operations::parse(self.pod.labels)) {
            self.draft.gate = Some(ConditionStatus::True);
            self.draft.gate_since = Some(whole_seconds(self.now));
        }
    }

    /// Undoes the operations that deadlines have cancelled. Returns whether there were any.
    fn undo_cancelled(&mut self) -> bool {
        let cancelled = std::mem::take(&mut self.cancelled);
        if cancelled.is_empty() {
            return false;
        }
        self.released.undo(&cancelled);
        self.draft = self.released.clone();
        true
    }

    fn conclude(mut self) -> PodPlan {
        let names = self.expected_hooks();
        if !self.pod.terminating {
            self.draft.expect(self.pod.available_conditions, names.clone());
        }
        // Store that an answer has resolved a doubt; otherwise the next process would ask again.
        let stored = HookRequests::parse(self.pod.facts.hook_requests);
        let is_settled = stored.0.keys().any(|hook| !self.draft.marks.0.contains_key(hook));
        let told = ResultRefusals::parse(self.pod.facts.result_refused);
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
        PodPlan {
            labels,
            gate,
            finalizers,
            annotations,
            open: self.open,
            kept,
            hook_reports: self.reports,
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

    /// Removes requests and evidence that no longer matter. Returns whether something of unregistered hooks is left on
    /// the pod; everything else is removed with the next write.
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
            HookRequestState::Drained => is_leaving,
            _ => holding.contains(name),
        });
        let before = self.draft.evidence.clone();
        self.draft.evidence.retain(|name| name == BUSY_EVIDENCE || !gone(name));
        had || before != self.draft.evidence
    }

    /// Returns whether a question is open whose time is not on the pod yet.
    fn asks_anew(&self, stored: &HookRequests) -> bool {
        let marks = self.draft.marks.0.iter();
        marks
            .filter(|(name, _)| self.open.iter().any(|open| &open.question.hook == *name))
            .any(|(name, mark)| stored.0.get(name) != Some(mark))
    }

    /// Returns whether the expected finalizers must be corrected now: an entry can no longer be met, or an entry is
    /// missing during an operation that the webhook would end without it. Otherwise the correction waits for the next
    /// write.
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
            (HOOK_REQUESTS, self.draft.marks.text(), facts.hook_requests),
        ];
        if !self.pod.terminating {
            changes.push((RESULT_REFUSED, self.draft.refusals.text(), facts.result_refused));
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

/// Returns the time in whole seconds, as in conditions.
fn whole_seconds(time: UnixNanos) -> UnixNanos {
    UnixNanos(time.0 - time.0.rem_euclid(1_000_000_000))
}
