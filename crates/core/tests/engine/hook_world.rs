//! Hooks around the pod of [`World`]: what they are asked, what they answer, and on which side they really are. What the engine does
//! with their finalizers is held against that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use podward_core::hooks::{
    Answer, Answers, DeadlinePolicy, Evidence, EvidenceLevel, FailurePolicy, GateTiming, Hook, HookSet,
    Phase, Question, Selector, finalizer_of, is_hook_finalizer,
};
use podward_core::keys::{self, Stage};
use podward_core::refusals::Refusals;
use podward_core::{
    Checks, ConditionStatus, Consumers, Objection, Operations, Plan, PodView, PostCheckRejection, UnixNanos,
    plan,
};

use crate::world::{Stored, World, assert_refused_are_judged, whole_seconds};

/// The label that hooks may select pods by.
pub(crate) const TIER: &str = "tier";

/// A hook in all phases, with the defaults of a registration and a deadline of 60 s.
pub(crate) fn hook(name: &str) -> Hook {
    Hook {
        name: name.to_owned(),
        pod_selector: Selector::everything(),
        namespace_selector: Selector::everything(),
        phases: vec![Phase::Prepare, Phase::Complete, Phase::Release],
        operation_types: Vec::new(),
        order: 0,
        deadline_nanoseconds: 60_000_000_000,
        deadline_policy: DeadlinePolicy::Hold,
        failure_policy: FailurePolicy::Fail,
        post_check_rejection: PostCheckRejection::Hold,
        prepare_timing: GateTiming::AfterGate,
        complete_timing: GateTiming::BeforeGate,
    }
}

/// Whether traffic can come to the pod through a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Out,
    /// It was asked to take the pod in, or to let go of it, and hasn't said that it did.
    Between,
    In,
}

/// What the process remembers of answers, until it restarts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(HashMap<(String, Phase, UnixNanos), Answer>);

fn key(question: &Question) -> (String, Phase, UnixNanos) {
    (question.hook.clone(), question.phase, question.since)
}

impl Answers for Board {
    fn answer(&self, question: &Question) -> Option<Answer> {
        self.0.get(&key(question)).cloned()
    }
}

#[derive(Default)]
pub(crate) struct Hooks {
    registered: BTreeMap<String, Hook>,
    set: HookSet,
    pub(crate) board: Board,
    pub(crate) asked: Vec<Question>,
    sides: BTreeMap<String, Side>,
    /// Nobody else sends traffic.
    pub(crate) are_alone: bool,
}

impl Hooks {
    pub(crate) fn matching(&self, labels: &BTreeMap<String, String>) -> Vec<Arc<Hook>> {
        self.set.matching(labels, &BTreeMap::new()).cloned().collect()
    }

    pub(crate) fn plan(&self, pod: &PodView<'_>, checks: &dyn Checks, now: UnixNanos) -> Plan {
        let hooks = self.matching(pod.labels);
        plan(pod, &Consumers { hooks: &hooks, known: &self.set, answers: &self.board }, checks, now)
    }

    pub(crate) fn side(&self, hook: &str) -> Side {
        self.sides.get(hook).copied().unwrap_or(Side::Out)
    }

    fn ask(&mut self, questions: Vec<Question>) {
        for question in &questions {
            if self.board.0.contains_key(&key(question)) {
                continue;
            }
            self.board.0.insert(key(question), Answer::Open { message: String::new() });
            if let Phase::Prepare | Phase::Complete | Phase::Release = question.phase {
                self.sides.insert(question.hook.clone(), Side::Between);
            }
        }
        self.board.0.retain(|known, _| questions.iter().any(|question| key(question) == *known));
        self.asked = questions;
    }

    fn answer(&mut self, hook: &str, answer: &Answer) -> bool {
        let asked: Vec<Question> =
            self.asked.iter().filter(|question| question.hook == hook).cloned().collect();
        for question in &asked {
            if matches!(self.board.0.get(&key(question)), Some(Answer::Done(_))) {
                continue;
            }
            self.board.0.insert(key(question), answer.clone());
            let side = match (answer, question.phase) {
                (Answer::Done(_), Phase::Complete) => Side::In,
                (Answer::Done(_), Phase::Prepare | Phase::Release) => Side::Out,
                _ => continue,
            };
            self.sides.insert(hook.to_owned(), side);
        }
        !asked.is_empty()
    }

    fn has_done(&self, hook: &str, phases: &[Phase]) -> bool {
        self.board.0.iter().any(|((name, phase, _), answer)| {
            name == hook && phases.contains(phase) && matches!(answer, Answer::Done(_))
        })
    }

    /// Whether it has said no to the result of the operation `id`, as far as the process knows.
    fn has_rejected(&self, hook: &str, id: &str) -> bool {
        self.asked.iter().any(|question| {
            question.hook == hook
                && question.phase == Phase::PostCheck
                && question.operations.iter().any(|(other, _)| other == id)
                && matches!(self.board.0.get(&key(question)), Some(Answer::Rejected { .. }))
        })
    }

    fn may_proceed(&self, hook: &Hook, phases: &[Phase], now: UnixNanos) -> bool {
        hook.deadline_policy == DeadlinePolicy::Proceed
            && self.asked.iter().any(|question| {
                question.hook == hook.name
                    && phases.contains(&question.phase)
                    && question.since.0 + hook.deadline_nanoseconds <= now.0
            })
    }
}

pub(crate) fn done() -> Answer {
    Answer::Done(Evidence { level: EvidenceLevel::Proven, detail: "seen".to_owned() })
}

impl World {
    pub(crate) fn register(&mut self, hook: Hook) {
        let before = self.hooks.registered.insert(hook.name.clone(), hook.clone());
        let is_held = self.pod.finalizers.contains(&finalizer_of(&hook.name));
        if before.is_some_and(|before| !before.takes_part_in(Phase::Prepare)) && !is_held {
            // It was never asked to let go; where it stands is its own affair.
            self.hooks.sides.remove(&hook.name);
        }
        self.hooks.set = HookSet::new(self.hooks.registered.values().cloned());
        self.leave_strangers();
    }

    /// The hook answers what it is asked. Gives whether it was asked anything. What it says of a pod that isn't its any more, because
    /// nobody has told it yet, has no meaning.
    pub(crate) fn answer(&mut self, hook: &str, answer: &Answer) -> bool {
        let was_asked = self.hooks.answer(hook, answer);
        self.leave_strangers();
        was_asked
    }

    pub(crate) fn deregister(&mut self, name: &str) {
        self.hooks.registered.remove(name);
        self.hooks.set = HookSet::new(self.hooks.registered.values().cloned());
        self.leave_strangers();
    }

    /// A hook that doesn't hold pods like this one, and doesn't hold this one by its finalizer, has nothing to do with it.
    fn leave_strangers(&mut self) {
        let matching = self.hooks.matching(&self.pod.labels);
        let pod = &self.pod;
        let holds = |name: &str| {
            matching.iter().any(|hook| hook.name == name && hook.is_consumer())
                || pod.finalizers.contains(&finalizer_of(name))
        };
        self.hooks.sides.retain(|name, _| holds(name));
    }

    pub(crate) fn relabel(&mut self, tier: Option<&str>) {
        let old = self.pod.clone();
        self.pod.labels.remove(TIER);
        self.pod.labels.extend(tier.map(|tier| (TIER.to_owned(), tier.to_owned())));
        if self.pod != old {
            self.pod.version += 1;
            self.history.push(self.pod.clone());
        }
        self.leave_strangers();
    }

    /// The process is killed and another one starts: everything that is not on the pod is gone.
    pub(crate) fn restart(&mut self) {
        let (checks, pod) = (self.checks, self.pod.clone());
        let now = self.now();
        let before = self.hooks.plan(&pod.view(), &checks, now);
        self.hooks.board = Board::default();
        self.hooks.asked.clear();
        let later = self.now();
        let after = self.hooks.plan(&pod.view(), &checks, later);
        if before.is_empty() && after.is_empty() {
            assert_stable(&before, &after, &pod);
        }
    }

    pub(crate) fn terminate(&mut self) {
        let now = whole_seconds(self.now());
        self.write(|pod| {
            if !pod.terminating {
                (pod.terminating, pod.times.terminating) = (true, Some(now));
            }
        });
    }

    pub(crate) fn containers(&mut self, ready: bool) {
        let now = whole_seconds(self.now());
        self.write(|pod| {
            if pod.containers_ready != ready {
                (pod.containers_ready, pod.times.containers_ready) = (ready, Some(now));
            }
        });
    }

    /// Writes what `plan` says, and then asks what it asks.
    pub(crate) fn carry_out(&mut self, plan: &Plan) {
        let old = self.pod.clone();
        self.write(|pod| {
            plan.labels.apply(&mut pod.labels);
            plan.finalizers.apply(&mut pod.finalizers);
            if plan.gate.is_some() && plan.gate != pod.gate {
                (pod.gate, pod.times.gate) = (plan.gate, Some(whole_seconds(plan.now)));
            }
            for (key, text) in &plan.annotations {
                match *key {
                    keys::AVAILABLE_CONDITIONS => pod.expected.clone_from(text),
                    keys::EVIDENCE => pod.evidence.clone_from(text),
                    keys::ASKED => pod.asked.clone_from(text),
                    keys::REFUSED => pod.refused.clone_from(text),
                    _ => {}
                }
            }
        });
        let new = self.pod.clone();
        self.check_hooks(&old, &new, plan);
        self.check_refusals(&old, &new);
        self.hooks.ask(plan.questions());
        if self.hooks.registered.is_empty() {
            return;
        }
        let (checks, later) = (self.checks, self.now());
        let again = self.hooks.plan(&new.view(), &checks, later);
        assert_stable(plan, &again, &new);
    }

    fn check_hooks(&mut self, old: &Stored, new: &Stored, plan: &Plan) {
        let now = plan.now;
        let others = |pod: &Stored| -> Vec<String> {
            pod.finalizers.iter().filter(|name| !is_hook_finalizer(name)).cloned().collect()
        };
        assert_eq!(others(old), others(new), "finalizers of others were touched");
        assert_eq!(foreign_entries(old), foreign_entries(new), "expectations of others were touched");
        assert!(
            !new.terminating || plan.finalizers.add.is_empty(),
            "a terminating pod can't be given finalizers"
        );
        // Of hooks that are gone nothing is left, so nothing is known of where they stand.
        let removed = &plan.finalizers.remove;
        self.hooks.sides.retain(|name, _| !removed.contains(&finalizer_of(name)));
        let matching = self.hooks.matching(&new.labels);
        let registered = self.hooks.registered.clone();
        let holders: Vec<&Arc<Hook>> = matching.iter().filter(|hook| hook.is_consumer()).collect();
        for hook in registered.values() {
            let finalizer = finalizer_of(&hook.name);
            let asked_in = |phase| hook.takes_part_in(phase);
            let is_holder = holders.iter().any(|holder| holder.name == hook.name) && !new.terminating;
            if plan.finalizers.remove.contains(&finalizer) {
                let gone = [Phase::Prepare, Phase::Release];
                let why = self.hooks.has_done(&hook.name, &gone)
                    || self.hooks.may_proceed(hook, &gone, now)
                    || (!is_holder && !asked_in(Phase::Release))
                    || (is_holder && !asked_in(Phase::Prepare) && new.gate != Some(ConditionStatus::True));
                assert!(why, "{} was made to let go: {hook:?} {old:?} -> {new:?}", hook.name);
                self.hooks.sides.insert(hook.name.clone(), Side::Out);
            }
            if is_holder
                && !asked_in(Phase::Complete)
                && !holds_gate(new)
                && new.finalizers.contains(&finalizer)
            {
                // It takes pods in without being asked.
                self.hooks.sides.insert(hook.name.clone(), Side::In);
            }
            if plan.finalizers.add.contains(&finalizer) {
                assert!(is_holder, "{} doesn't hold pods like this one", hook.name);
                let is_in = self.hooks.has_done(&hook.name, &[Phase::Complete])
                    || self.hooks.may_proceed(hook, &[Phase::Complete], now)
                    || !asked_in(Phase::Complete);
                assert!(
                    is_in || holds_gate(new),
                    "{} was made to hold the pod: {old:?} -> {new:?}",
                    hook.name
                );
                if is_in && !holds_gate(new) {
                    self.hooks.sides.insert(hook.name.clone(), Side::In);
                }
            } else if is_holder && self.hooks.may_proceed(hook, &[Phase::Complete], now) && !holds_gate(new) {
                // It was in doubt, and has its finalizer already.
                self.hooks.sides.insert(hook.name.clone(), Side::In);
            }
        }
        self.check_sides(old, new, &holders);
        self.check_pre_checks(old, new, &matching, now);
    }

    /// What the whole thing is for.
    fn check_sides(&self, old: &Stored, new: &Stored, holders: &[&Arc<Hook>]) {
        let side = |hook: &Hook| self.hooks.side(&hook.name);
        let turned_on = new.gate == Some(ConditionStatus::True) && old.gate != new.gate;
        let available = |pod: &Stored| pod.labels.contains_key(keys::SERVICE_AVAILABLE);
        let became_available = available(new) && !available(old);
        for hook in holders.iter().filter(|hook| hook.takes_part_in(Phase::Complete)) {
            let before = hook.complete_timing == GateTiming::BeforeGate;
            if (turned_on && before) || became_available {
                assert_eq!(side(hook), Side::In, "in service without {}: {old:?} -> {new:?}", hook.name);
            }
        }
        let operate = |pod: &Stored| -> BTreeSet<String> {
            let operations = Operations::parse(&pod.labels);
            operations.iter().filter(|(_, op)| op.has(Stage::Operate)).map(|(id, _)| id.to_owned()).collect()
        };
        if !operate(new).is_subset(&operate(old)) {
            for hook in holders.iter().filter(|hook| hook.takes_part_in(Phase::Prepare)) {
                assert_eq!(
                    side(hook),
                    Side::Out,
                    "operated on while {} may send traffic: {old:?} -> {new:?}",
                    hook.name
                );
            }
        }
    }

    fn check_pre_checks(&self, old: &Stored, new: &Stored, matching: &[Arc<Hook>], now: UnixNanos) {
        for (id, operation) in Operations::parse(&new.labels).iter() {
            if !operation.has(Stage::PreChecked) || old.has(Stage::PreChecked, id) {
                continue;
            }
            for hook in matching.iter().filter(|hook| hook.takes_part_in(Phase::PreCheck)) {
                let agreed = self.hooks.has_done(&hook.name, &[Phase::PreCheck])
                    || self.hooks.may_proceed(hook, &[Phase::PreCheck], now);
                assert!(agreed, "{id} begins though {} was not heard: {old:?} -> {new:?}", hook.name);
            }
        }
    }

    /// Whose operators are told that a result is refused, and that such a result isn't accepted.
    fn check_refusals(&self, old: &Stored, new: &Stored) {
        if new.terminating {
            return;
        }
        assert_refused_are_judged(new);
        let told = Refusals::parse(new.refused.as_deref());
        assert_eq!(told, Refusals::of(&new.view()), "the record is of an operation that isn't refused");
        let before = Refusals::of(&old.view());
        let matching = self.hooks.matching(&new.labels);
        for (id, operation) in Operations::parse(&new.labels).iter() {
            let names: Vec<&str> = told.of_operation(id).map(|refusal| refusal.by).collect();
            assert_eq!(operation.has(Stage::Rollback), !names.is_empty(), "{id}: {new:?}");
            let was = |by: &str| before.of_operation(id).any(|refusal| refusal.by == by);
            let tells = matching.iter().filter(|hook| {
                hook.takes_part_in(Phase::PostCheck)
                    && hook.post_check_rejection == PostCheckRejection::Rollback
                    && operation.known_type().is_some_and(|known| hook.checks_type(known))
            });
            let mut refusing: Vec<String> = Vec::new();
            for hook in tells {
                let by = Objection::name_of_hook(&hook.name);
                let says_no = self.hooks.has_rejected(&hook.name, id);
                if says_no || (was(&by) && !self.hooks.has_done(&hook.name, &[Phase::PostCheck])) {
                    refusing.push(by);
                }
            }
            for objection in self.checks.objections(id, "") {
                if objection.refuses() || was(&objection.by) {
                    refusing.push(objection.by);
                }
            }
            let is_founded = |by: &str| was(by) || refusing.iter().any(|other| other == by);
            assert!(names.iter().all(|by| is_founded(by)), "{id} is refused by nobody: {old:?} -> {new:?}");
            let is_accepted = operation.has_any(&[Stage::PostChecked, Stage::Completing]);
            if is_accepted && !old.has(Stage::PostChecked, id) && !old.has(Stage::Completing, id) {
                assert!(refusing.is_empty(), "{id} is accepted, refused by {refusing:?}: {old:?} -> {new:?}");
            }
            if operation.awaits_judgement() {
                let is_told = |by: &String| names.contains(&by.as_str());
                assert!(refusing.iter().all(is_told), "{id}: {refusing:?} aren't told: {old:?} -> {new:?}");
            }
        }
        // What is over and done with was accepted.
        for (id, operation) in Operations::parse(&old.labels).iter() {
            if operation.has(Stage::Rollback)
                && !new.has(Stage::Rollback, id)
                && !new.has(Stage::Operating, id)
            {
                assert!(
                    !self.checks.refuses || old.has(Stage::UndoOperationType, id),
                    "{id} is over: {old:?} -> {new:?}"
                );
            }
        }
    }

    /// Everybody answers DONE to everything, and works until nobody has anything to do.
    pub(crate) fn settle_with_hooks(&mut self) {
        for _ in 0..60 {
            let (before, asked) = (self.pod.clone(), self.hooks.asked.clone());
            self.reconcile_latest();
            self.kubelet();
            if !self.hooks.are_alone {
                self.traffic();
            }
            let names: Vec<String> = self.hooks.registered.keys().cloned().collect();
            let mut heard = false;
            for name in names {
                heard |= self.answer(&name, &done());
            }
            if self.pod == before && !heard && asked == self.hooks.asked {
                return;
            }
        }
        panic!("the pod does not come to rest: {:#?} {:#?}", self.pod, self.hooks.asked);
    }

    /// Nothing of ours is on the pod but what belongs to the hooks that hold it, and all of that is.
    pub(crate) fn assert_held_by_exactly_its_hooks(&self) {
        let holders: Vec<String> = self
            .hooks
            .matching(&self.pod.labels)
            .iter()
            .filter(|hook| hook.is_consumer())
            .map(|hook| hook.name.clone())
            .collect();
        let mut held: Vec<&String> =
            self.pod.finalizers.iter().filter(|name| is_hook_finalizer(name)).collect();
        held.sort();
        let finalizers: BTreeSet<String> = holders.iter().map(|name| finalizer_of(name)).collect();
        assert_eq!(held, finalizers.iter().collect::<Vec<_>>(), "{:?}", self.pod);
        let expected =
            podward_core::with_consumers(self.pod.expected.as_deref(), holders.iter().map(String::as_str));
        assert_eq!(expected.unwrap(), None, "{:?}", self.pod);
        for text in [&self.pod.evidence, &self.pod.asked].into_iter().flatten() {
            let hooks: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap();
            for name in hooks.keys() {
                assert!(self.hooks.registered.contains_key(name), "{name} is gone: {text}");
            }
        }
    }
}

fn holds_gate(pod: &Stored) -> bool {
    Operations::parse(&pod.labels).iter().any(|(_, op)| op.has_any(&[Stage::Preparing, Stage::Operate]))
}

fn foreign_entries(pod: &Stored) -> BTreeMap<String, serde_json::Value> {
    let text: serde_json::Value = pod
        .expected
        .as_deref()
        .map(|text| serde_json::from_str(text).unwrap_or_default())
        .unwrap_or_default();
    let entries = text["expectedFinalizers"].as_object().cloned().unwrap_or_default();
    entries.into_iter().filter(|(employer, _)| !employer.starts_with("LifecycleHook//")).collect()
}

/// A question that is open in both plans is the same question.
fn assert_stable(one: &Plan, other: &Plan, pod: &Stored) {
    for question in other.questions() {
        let same = one.open.iter().find(|open| {
            open.question.hook == question.hook
                && open.question.phase == question.phase
                && open.question.operations == question.operations
        });
        if let Some(same) = same {
            assert_eq!(same.question, question, "asked anew: {pod:?}");
        }
    }
}
