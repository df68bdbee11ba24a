//! Hooks around the pod of [`Model`]: what they are asked, what they answer, and on which side they really are. What
//! the engine does with their finalizers is held against that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use podward_core::hooks::{
    DeadlinePolicy, Evidence, EvidenceLevel, FailurePolicy, GateTiming, Hook, HookAnswer, HookAnswers,
    HookPhase, HookQuestion, HookSet, Selector, hook_finalizer, is_hook_finalizer,
};
use podward_core::keys::{self, Stage};
use podward_core::refusals::ResultRefusals;
use podward_core::{
    Checks, ConditionStatus, LabelChanges, Objection, Operations, PodHooks, PodPlan, PodView,
    PostCheckRejection, UnixNanos, advance, plan,
};

use crate::model::{Model, Stored, assert_refused_are_judged, whole_seconds};

mod checks;

/// The label that hooks may select pods by.
pub(crate) const TIER: &str = "tier";

/// A hook in all phases, with the defaults of a registration and a deadline of 60 s.
pub(crate) fn hook(name: &str) -> Hook {
    Hook {
        name: name.to_owned(),
        pod_selector: Selector::everything(),
        namespace_selector: Selector::everything(),
        phases: vec![HookPhase::Prepare, HookPhase::Complete, HookPhase::Release],
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
    /// It was asked to add the pod to traffic, or to drain it, and has not answered DONE.
    Between,
    In,
}

/// What the process remembers of answers, until it restarts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(HashMap<(String, HookPhase, UnixNanos), HookAnswer>);

fn key(question: &HookQuestion) -> (String, HookPhase, UnixNanos) {
    (question.hook.clone(), question.phase, question.since)
}

impl HookAnswers for Board {
    fn answer(&self, question: &HookQuestion) -> Option<HookAnswer> {
        self.0.get(&key(question)).cloned()
    }

    fn withhold_unless_asked(&self, hook: &str, phase: HookPhase) -> bool {
        self.0.keys().any(|(name, of, _)| name == hook && *of == phase)
    }
}

#[derive(Default)]
pub(crate) struct Hooks {
    registered: BTreeMap<String, Hook>,
    set: HookSet,
    pub(crate) board: Board,
    pub(crate) asked: Vec<HookQuestion>,
    sides: BTreeMap<String, Side>,
    /// Nobody else sends traffic.
    pub(crate) are_alone: bool,
}

impl Hooks {
    pub(crate) fn matching(&self, labels: &BTreeMap<String, String>) -> Vec<Arc<Hook>> {
        self.set.matching(labels, &BTreeMap::new()).cloned().collect()
    }

    pub(crate) fn plan(&self, pod: &PodView<'_>, checks: &dyn Checks, now: UnixNanos) -> PodPlan {
        let hooks = self.matching(pod.labels);
        plan(pod, &PodHooks { hooks: &hooks, known: &self.set, answers: &self.board }, checks, now)
    }

    pub(crate) fn side(&self, hook: &str) -> Side {
        self.sides.get(hook).copied().unwrap_or(Side::Out)
    }

    fn ask(&mut self, questions: Vec<HookQuestion>) {
        for question in &questions {
            if self.board.0.contains_key(&key(question)) {
                continue;
            }
            self.board.0.insert(key(question), HookAnswer::Open { message: String::new() });
            if let HookPhase::Prepare | HookPhase::Complete | HookPhase::Release = question.phase {
                self.sides.insert(question.hook.clone(), Side::Between);
            }
        }
        self.board.0.retain(|known, _| questions.iter().any(|question| key(question) == *known));
        self.asked = questions;
    }

    fn answer(&mut self, hook: &str, answer: &HookAnswer) -> bool {
        let asked: Vec<HookQuestion> =
            self.asked.iter().filter(|question| question.hook == hook).cloned().collect();
        for question in &asked {
            if matches!(self.board.0.get(&key(question)), Some(HookAnswer::Done(_))) {
                continue;
            }
            self.board.0.insert(key(question), answer.clone());
            let side = match (answer, question.phase) {
                (HookAnswer::Done(_), HookPhase::Complete) => Side::In,
                (HookAnswer::Done(_), HookPhase::Prepare | HookPhase::Release) => Side::Out,
                _ => continue,
            };
            self.sides.insert(hook.to_owned(), side);
        }
        !asked.is_empty()
    }

    fn has_done(&self, hook: &str, phases: &[HookPhase]) -> bool {
        self.board.0.iter().any(|((name, phase, _), answer)| {
            name == hook && phases.contains(phase) && matches!(answer, HookAnswer::Done(_))
        })
    }

    /// Returns whether it has said no to the result of the operation `id`, as far as the process knows.
    fn has_rejected(&self, hook: &str, id: &str) -> bool {
        self.asked.iter().any(|question| {
            question.hook == hook
                && question.phase == HookPhase::PostCheck
                && question.operations.iter().any(|(other, _)| other == id)
                && matches!(self.board.0.get(&key(question)), Some(HookAnswer::Rejected { .. }))
        })
    }

    fn may_proceed(&self, hook: &Hook, phases: &[HookPhase], now: UnixNanos) -> bool {
        hook.deadline_policy == DeadlinePolicy::Proceed
            && self.asked.iter().any(|question| {
                question.hook == hook.name
                    && phases.contains(&question.phase)
                    && question.since.0 + hook.deadline_nanoseconds <= now.0
            })
    }
}

pub(crate) fn done() -> HookAnswer {
    HookAnswer::Done(Evidence { level: EvidenceLevel::Proven, detail: "seen".to_owned() })
}

impl Model {
    pub(crate) fn register(&mut self, hook: Hook) {
        let before = self.hooks.registered.insert(hook.name.clone(), hook.clone());
        let is_held = self.pod.finalizers.contains(&hook_finalizer(&hook.name));
        if before.is_some_and(|before| !before.takes_part_in(HookPhase::Prepare)) && !is_held {
            // It was never asked to let go; where it stands is its own affair.
            self.hooks.sides.remove(&hook.name);
        }
        self.hooks.set = HookSet::new(self.hooks.registered.values().cloned());
        self.leave_strangers();
    }

    /// The hook answers what it is asked. Returns whether it was asked anything. What it says of a pod that isn't its
    /// any more, because nobody has told it yet, has no meaning.
    pub(crate) fn answer(&mut self, hook: &str, answer: &HookAnswer) -> bool {
        let was_asked = self.hooks.answer(hook, answer);
        self.leave_strangers();
        was_asked
    }

    pub(crate) fn deregister(&mut self, name: &str) {
        self.hooks.registered.remove(name);
        self.hooks.set = HookSet::new(self.hooks.registered.values().cloned());
        self.leave_strangers();
    }

    /// A hook that doesn't hold pods like this one, and doesn't hold this one by its finalizer, has nothing to do with
    /// it.
    fn leave_strangers(&mut self) {
        let matching = self.hooks.matching(&self.pod.labels);
        let pod = &self.pod;
        let holds = |name: &str| {
            matching.iter().any(|hook| hook.name == name && hook.is_consumer())
                || pod.finalizers.contains(&hook_finalizer(name))
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
    pub(crate) fn carry_out(&mut self, plan: &PodPlan) {
        let old = self.pod.clone();
        self.write(|pod| pod.carry(plan));
        let new = self.pod.clone();
        assert_advanced(&new);
        assert_granted(&new, plan);
        self.check_hooks(&old, &new, plan);
        self.check_refusals(&old, &new, plan.now);
        self.hooks.ask(plan.questions());
        if self.hooks.registered.is_empty() {
            return;
        }
        let (checks, later) = (self.checks, self.now());
        let again = self.hooks.plan(&new.view(), &checks, later);
        assert_stable(plan, &again, &new);
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
}

/// A question that is open in both plans is the same question.
fn assert_stable(one: &PodPlan, other: &PodPlan, pod: &Stored) {
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

/// An operation whose pod is out of service and used by nobody has its permission in the same write.
fn assert_granted(pod: &Stored, plan: &PodPlan) {
    let is_out = pod.gate == Some(ConditionStatus::False)
        && !pod.finalizers.iter().any(|name| name.starts_with(keys::PROT_FINALIZER_PREFIX));
    let waits = Operations::parse(&pod.labels)
        .iter()
        .any(|(_, operation)| operation.has(Stage::Preparing) && operation.has(Stage::PreChecked));
    assert!(pod.terminating || !is_out || !waits || !plan.open.is_empty(), "{pod:?}");
}

/// What the controller stores is a fixpoint of `advance`: the webhook adds nothing to a later write of anybody. While a
/// hook is in doubt, only the controller knows that the pod waits for it. Labels of a pod that is deleted do not matter.
fn assert_advanced(pod: &Stored) {
    if pod.asked.is_none() && !pod.terminating {
        let more = advance(None, &pod.view(), UnixNanos(0));
        assert_eq!(more, LabelChanges::default(), "{pod:?}");
    }
}
