//! Hooks, rule by rule: what a plan writes and asks in each state, and that it costs no more writes than it has to.

use podward_core::hooks::{
    DeadlinePolicy, EvidenceLevel, GateTiming, Hook, HookAnswer, HookPhase, HookQuestion, consumer_key_of,
    hook_finalizer,
};
use podward_core::keys::{self, Stage};
use podward_core::{ConditionStatus, HookEvent, HookReport, NoRules, PodFacts, PodPlan, PodView, UnixNanos};

use crate::hook_model::{done, hook};
use crate::model::Model;

mod changes;
mod deadlines;

const SECOND: i64 = 1_000_000_000;

/// A new pod and these hooks; nothing has been done yet.
fn created(hooks: impl IntoIterator<Item = Hook>) -> Model {
    let mut model = Model::created(true, false);
    model.hooks.are_alone = true;
    hooks.into_iter().for_each(|hook| model.register(hook));
    model
}

/// A pod in service that these hooks hold.
fn in_service(hooks: impl IntoIterator<Item = Hook>) -> Model {
    let mut model = created(hooks);
    model.settle_with_hooks();
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    model
}

impl Model {
    /// What the controller would do now.
    fn look(&mut self) -> PodPlan {
        let now = self.now();
        self.hooks.plan(&self.pod.view(), &NoRules, now)
    }

    /// The controller works until it has nothing to write; gives the number of writes.
    fn work(&mut self) -> usize {
        (0..20).take_while(|_| self.reconcile_latest()).count()
    }

    fn asked(&self) -> Vec<(&str, HookPhase)> {
        self.hooks.asked.iter().map(|question| (question.hook.as_str(), question.phase)).collect()
    }

    fn answers(&mut self, hook: &str) -> usize {
        assert!(self.answer(hook, &done()), "{hook} wasn't asked: {:?}", self.hooks.asked);
        self.work()
    }

    fn is_held_by(&self, hook: &str) -> bool {
        self.pod.finalizers.contains(&hook_finalizer(hook))
    }

    fn sleep(&mut self, seconds: i64) {
        self.now += seconds * SECOND;
    }

    fn question(&self, hook: &str) -> &HookQuestion {
        self.hooks.asked.iter().find(|question| question.hook == hook).unwrap()
    }

    fn reported(&mut self) -> String {
        self.look().explain(&self.pod.view(), &NoRules).message
    }
}

fn after_gate(name: &str) -> Hook {
    Hook { complete_timing: GateTiming::AfterGate, ..hook(name) }
}

fn with(name: &str, phases: &[HookPhase]) -> Hook {
    Hook { phases: phases.to_vec(), ..hook(name) }
}

#[test]
fn one_operation_with_one_consumer_costs_four_writes() {
    let mut model = in_service([after_gate("mesh")]);
    model.begin("x", "update");
    assert_eq!(model.work(), 1, "preparing and the gate");
    assert_eq!(model.asked(), [("mesh", HookPhase::Prepare)]);
    assert_eq!(model.pod.gate, Some(ConditionStatus::False));
    model.kubelet();
    assert_eq!(model.answers("mesh"), 1, "the finalizer, operate and the evidence");
    assert!(model.pod.has(Stage::Operate, "x") && !model.is_held_by("mesh"));
    assert_eq!(model.pod.evidence.as_deref(), Some(r#"{"mesh":{"level":"PROVEN","detail":"seen"}}"#));
    model.finish("x");
    assert_eq!(model.work(), 1, "completing and the gate");
    assert!(model.asked().is_empty(), "not asked before the pod is Ready");
    model.kubelet();
    assert_eq!(model.work(), 0);
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    assert_eq!(model.answers("mesh"), 1, "the finalizer, the end and service-available");
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    assert_eq!(model.pod.asked, None);
}

#[test]
fn one_operation_with_a_consumer_before_the_gate_costs_five_writes() {
    let mut model = in_service([hook("mesh")]);
    model.begin("x", "update");
    let mut writes = model.work();
    model.kubelet();
    writes += model.answers("mesh");
    model.finish("x");
    writes += model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)], "containers are ready");
    assert_eq!(model.pod.gate, Some(ConditionStatus::False), "it waits for the hook");
    writes += model.answers("mesh");
    assert_eq!(model.pod.gate, Some(ConditionStatus::True));
    model.kubelet();
    writes += model.work();
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    assert_eq!(writes, 5);
}

#[test]
fn a_new_pod_is_not_ready_before_hooks_have_taken_it_in() {
    let mut model = created([hook("mesh"), after_gate("late")]);
    model.containers(false);
    model.work();
    assert!(model.asked().is_empty() && model.pod.gate.is_none(), "the containers aren't ready");
    assert!(model.reported().contains("containers to be ready, and then for hook"), "{}", model.reported());
    model.containers(true);
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    assert!(model.reported().contains("waits for hook mesh to add it to traffic"), "{}", model.reported());
    assert_eq!(model.answers("mesh"), 1, "the finalizer and the gate");
    assert!(model.pod.gate == Some(ConditionStatus::True) && model.asked().is_empty());
    model.kubelet();
    model.work();
    assert_eq!(model.asked(), [("late", HookPhase::Complete)], "asked of a pod that is Ready");
    assert!(!model.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    assert_eq!(model.answers("late"), 1);
    assert!(model.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    model.assert_held_by_exactly_its_hooks();
}

#[test]
fn a_later_hook_takes_nothing_out_of_service() {
    let mut model = in_service([]);
    model.register(Hook { deadline_policy: DeadlinePolicy::Proceed, ..hook("late") });
    assert_eq!(model.work(), 0, "a pod at rest isn't written to before it answers");
    assert_eq!(model.asked(), [("late", HookPhase::Complete)]);
    model.sleep(10_000);
    assert_eq!(model.work(), 0, "nothing waits for it, so there is no deadline");
    assert_eq!(model.look().wake, None);
    assert!(model.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    assert_eq!(model.answers("late"), 1, "finalizer and expectation");
    model.assert_held_by_exactly_its_hooks();
}

#[test]
fn a_later_hook_that_does_not_answer_keeps_no_other_one_from_adding_a_pod_in_service() {
    let ordered = |name, order| Hook { order, deadline_policy: DeadlinePolicy::Proceed, ..hook(name) };
    let mut model = in_service([]);
    model.register(ordered("first", 10));
    model.register(ordered("second", 0));
    model.work();
    model.answer("first", &HookAnswer::Open { message: "later".to_owned() });
    model.sleep(10_000);
    model.work();
    assert!(model.asked().contains(&("second", HookPhase::Complete)), "{:?}", model.asked());
    model.answers("second");
    assert!(model.is_held_by("second") && !model.is_held_by("first"));
    assert!(model.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
}

#[test]
fn hooks_before_the_gate_release_first() {
    let before = Hook { prepare_timing: GateTiming::BeforeGate, ..hook("balancer") };
    let mut model = in_service([before, hook("mesh")]);
    model.begin("x", "update");
    model.work();
    assert_eq!(model.asked(), [("balancer", HookPhase::Prepare)]);
    assert_eq!(model.pod.gate, Some(ConditionStatus::True), "it serves while the balancer lets go");
    assert!(model.reported().contains("waits for hook balancer to release the pod"), "{}", model.reported());
    model.sleep(30);
    assert_eq!(model.answers("balancer"), 1, "its finalizer and the gate");
    assert_eq!(model.pod.gate, Some(ConditionStatus::False));
    assert_eq!(model.asked(), [("mesh", HookPhase::Prepare)]);
    let mesh = model.question("mesh").clone();
    assert!(mesh.deadline.0 > model.now + 50 * SECOND, "its time began when it was asked");
    assert_eq!(model.answers("mesh"), 1);
    assert!(model.pod.has(Stage::Operate, "x"));
}

#[test]
fn orders_are_asked_one_after_the_other() {
    let ordered = |name: &str, order| Hook { order, ..hook(name) };
    let mut model = created([ordered("a", 1), ordered("b", 2), ordered("c", 2)]);
    model.work();
    assert_eq!(model.asked(), [("b", HookPhase::Complete), ("c", HookPhase::Complete)]);
    model.answers("c");
    assert_eq!(model.asked(), [("b", HookPhase::Complete)]);
    model.answers("b");
    assert_eq!(model.asked(), [("a", HookPhase::Complete)]);
    model.answers("a");
    model.kubelet();
    model.work();
    model.begin("x", "update");
    model.work();
    assert_eq!(model.asked(), [("a", HookPhase::Prepare)]);
    model.answers("a");
    assert_eq!(model.asked(), [("b", HookPhase::Prepare), ("c", HookPhase::Prepare)]);
}

#[test]
fn operations_wait_for_pre_checks_of_their_type() {
    let guard = Hook { operation_types: vec!["update".to_owned()], ..with("guard", &[HookPhase::PreCheck]) };
    let mut model = in_service([guard, with("all", &[HookPhase::PreCheck])]);
    model.begin("x", "update");
    model.work();
    assert_eq!(model.asked(), [("all", HookPhase::PreCheck), ("guard", HookPhase::PreCheck)]);
    assert_eq!(model.question("guard").operations, [("x".to_owned(), "update".to_owned())]);
    let since = model.pod.labels[&Stage::PreCheck.key("x")].parse().unwrap();
    assert_eq!(model.question("guard").since, UnixNanos(since));
    assert_eq!(model.answers("all"), 0);
    assert!(model.reported().contains("operation x (update) waits for hook guard to allow the start"));
    model.answer("guard", &HookAnswer::Rejected { reason: "frozen".to_owned() });
    assert_eq!(model.work(), 0);
    let plan = model.look();
    assert!(plan.hook_reports.iter().any(|note| note.event == HookEvent::Rejected("frozen".to_owned())));
    assert!(model.reported().contains("hook guard: PRE_CHECK since"), "{}", model.reported());
    assert!(model.reported().contains("rejected: frozen; due by"), "{}", model.reported());
    model.answers("guard");
    assert!(model.pod.has(Stage::Operate, "x"));
    model.begin("y", "restart");
    model.work();
    assert_eq!(model.asked(), [("all", HookPhase::PreCheck)], "guard has no part in restarts");
}

#[test]
fn results_wait_for_post_checks() {
    let mut model = in_service([with("judge", &[HookPhase::PostCheck])]);
    model.begin("x", "update");
    model.work();
    model.finish("x");
    model.work();
    assert_eq!(model.asked(), [("judge", HookPhase::PostCheck)]);
    assert!(model.reported().contains("is done and waits for hook judge to accept its result"));
    assert_eq!(model.pod.gate, Some(ConditionStatus::False));
    model.answers("judge");
    model.settle_with_hooks();
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
}

/// A pod that waits for `mesh` to let go, and its deadline in a moment.
#[test]
fn an_undone_operation_makes_a_hook_take_the_pod_in_again() {
    let mut model = in_service([hook("mesh")]);
    model.begin("x", "update");
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Prepare)]);
    model.undo("x", "update");
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    assert!(model.is_held_by("mesh"), "it may not have begun to let go");
    assert_eq!(model.pod.gate, Some(ConditionStatus::False), "or it may have");
    model.restart();
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)], "also for a new process");
    model.answers("mesh");
    assert_eq!(model.pod.gate, Some(ConditionStatus::True));
}

#[test]
fn a_hook_that_may_have_added_the_pod_is_asked_to_drain_it() {
    let mut model = created([hook("mesh")]);
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    model.begin("x", "update");
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Prepare)]);
    assert!(model.is_held_by("mesh") && !model.pod.has(Stage::Operate, "x"));
    model.answers("mesh");
    assert!(model.pod.has(Stage::Operate, "x"));
}

#[test]
fn expectations_are_corrected_and_those_of_others_stay() {
    let mut model = in_service([after_gate("mesh")]);
    let foreign = r#"{"expectedFinalizers":{"LifecycleHook//gone":"prot.podopslifecycle.kusionstack.io/lifecyclehook-0","Slb/d/a":"example.com/not-ours"},"more":1}"#;
    model.pod.expected = Some(foreign.to_owned());
    assert_eq!(model.work(), 1, "what is gone holds the pod up");
    let corrected: serde_json::Value = serde_json::from_str(model.pod.expected.as_ref().unwrap()).unwrap();
    let wanted = serde_json::json!({
        "expectedFinalizers": {consumer_key_of("mesh"): hook_finalizer("mesh"), "Slb/d/a": "example.com/not-ours"},
        "more": 1,
    });
    assert_eq!(corrected, wanted);
    model.pod.expected = Some(r#"{"expectedFinalizers":{"Slb/d/a":"example.com/not-ours"}}"#.to_owned());
    assert_eq!(model.work(), 0, "what is missing can wait for the next write");
    model.begin("x", "update");
    assert_eq!(model.work(), 1);
    assert!(model.pod.expected.as_ref().unwrap().contains(&consumer_key_of("mesh")));
    model.pod.expected = Some("no JSON".to_owned());
    assert_eq!(model.work(), 0, "nobody can tell what it expects: it is left to whoever wrote it");
}

#[test]
fn third_parties_are_waited_for_as_well() {
    let mut model = Model::created(true, true);
    model.register(after_gate("mesh"));
    model.settle_with_hooks();
    model.begin("x", "update");
    model.work();
    model.kubelet();
    model.answers("mesh");
    assert!(!model.pod.has(Stage::Operate, "x"));
    assert!(model.reported().contains("waits for the owners of prot."), "{}", model.reported());
    model.traffic();
    model.work();
    assert!(model.pod.has(Stage::Operate, "x"));
}

#[test]
fn the_explanation_names_hook_phase_time_deadline_and_what_happens() {
    let mut model = in_service([Hook { deadline_policy: DeadlinePolicy::Proceed, ..after_gate("mesh") }]);
    model.begin("x", "update");
    model.work();
    model.kubelet();
    model.answer("mesh", &HookAnswer::Open { message: "3 sessions are open".to_owned() });
    assert_eq!(
        model.reported(),
        "operation x (update) waits for hook mesh to release the pod; its permission follows. \
         hook mesh: PREPARE since 2023-11-14T22:13:20Z, 3 sessions are open; \
         at 2023-11-14T22:14:20Z the pod continues without it"
    );
}

#[test]
fn answers_are_reported_with_their_evidence() {
    let mut model = in_service([hook("mesh")]);
    model.begin("x", "update");
    model.work();
    model.answer("mesh", &done());
    let notes = model.look().hook_reports;
    let since = model.question("mesh").since;
    assert!(
        notes.iter().any(|note| note.hook == "mesh"
            && note.phase == HookPhase::Prepare
            && note.since == since
            && note.event == HookEvent::Done(EvidenceLevel::Proven)),
        "{notes:?}"
    );
}

/// The write would meet that of the scheduler.
#[test]
fn the_gate_of_a_new_pod_waits_for_its_node() {
    let mut model = created([after_gate("late")]);
    let now = model.now();
    let mut planned = |unscheduled| {
        let view = model.pod.view();
        let view = PodView { facts: PodFacts { unscheduled, ..view.facts }, ..view };
        model.hooks.plan(&view, &NoRules, now).gate
    };
    assert_eq!([true, false].map(&mut planned), [None, Some(ConditionStatus::True)]);
    model.pod.gate = Some(ConditionStatus::False);
    let facts = PodFacts { unscheduled: true, ..model.pod.view().facts };
    let plan = model.hooks.plan(&PodView { facts, ..model.pod.view() }, &NoRules, now);
    assert_eq!(plan.gate, Some(ConditionStatus::True), "somebody has written it before");
}

#[test]
fn a_pod_that_is_opted_out_keeps_nothing_of_hooks() {
    let mut model = in_service([hook("mesh")]);
    model.pod.labels.remove(keys::CONTROL_LABEL);
    let plan = model.look();
    assert_eq!(plan.finalizers.remove, [hook_finalizer("mesh")]);
    assert!(plan.annotations.contains(&(keys::AVAILABLE_CONDITIONS, None)), "{plan:?}");
    assert!(plan.labels.is_empty() && plan.gate.is_none() && plan.open.is_empty());
}
