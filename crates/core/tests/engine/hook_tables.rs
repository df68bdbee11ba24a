//! Hooks, rule by rule: what a plan writes and asks in each state, and that it costs no more writes than it has to.

use podward_core::hooks::{
    Answer, DeadlinePolicy, EvidenceLevel, GateTiming, Hook, Phase, Question, employer_of, finalizer_of,
};
use podward_core::keys::{self, Stage};
use podward_core::{ConditionStatus, HookEvent, NoRules, Note, Plan, UnixNanos};

use crate::hook_world::{done, hook};
use crate::world::World;

mod changes;
mod deadlines;

const SECOND: i64 = 1_000_000_000;

/// A new pod and these hooks; nothing has been done yet.
fn created(hooks: impl IntoIterator<Item = Hook>) -> World {
    let mut world = World::created(true, false);
    world.hooks.are_alone = true;
    hooks.into_iter().for_each(|hook| world.register(hook));
    world
}

/// A pod in service that these hooks hold.
fn in_service(hooks: impl IntoIterator<Item = Hook>) -> World {
    let mut world = created(hooks);
    world.settle_with_hooks();
    assert_eq!(world.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    world
}

impl World {
    /// What the controller would do now.
    fn look(&mut self) -> Plan {
        let now = self.now();
        self.hooks.plan(&self.pod.view(), &NoRules, now)
    }

    /// The controller works until it has nothing to write; gives the number of writes.
    fn work(&mut self) -> usize {
        (0..20).take_while(|_| self.reconcile_latest()).count()
    }

    fn asked(&self) -> Vec<(&str, Phase)> {
        self.hooks.asked.iter().map(|question| (question.hook.as_str(), question.phase)).collect()
    }

    fn answers(&mut self, hook: &str) -> usize {
        assert!(self.answer(hook, &done()), "{hook} wasn't asked: {:?}", self.hooks.asked);
        self.work()
    }

    fn is_held_by(&self, hook: &str) -> bool {
        self.pod.finalizers.contains(&finalizer_of(hook))
    }

    fn sleep(&mut self, seconds: i64) {
        self.now += seconds * SECOND;
    }

    fn question(&self, hook: &str) -> &Question {
        self.hooks.asked.iter().find(|question| question.hook == hook).unwrap()
    }

    fn told(&mut self) -> String {
        self.look().explain(&self.pod.view(), &NoRules).message
    }
}

fn after_gate(name: &str) -> Hook {
    Hook { complete_timing: GateTiming::AfterGate, ..hook(name) }
}

fn with(name: &str, phases: &[Phase]) -> Hook {
    Hook { phases: phases.to_vec(), ..hook(name) }
}

#[test]
fn one_operation_with_one_consumer_costs_four_writes() {
    let mut world = in_service([after_gate("mesh")]);
    world.begin("x", "update");
    assert_eq!(world.work(), 1, "preparing and the gate");
    assert_eq!(world.asked(), [("mesh", Phase::Prepare)]);
    assert_eq!(world.pod.gate, Some(ConditionStatus::False));
    world.kubelet();
    assert_eq!(world.answers("mesh"), 1, "the finalizer, operate and the evidence");
    assert!(world.pod.has(Stage::Operate, "x") && !world.is_held_by("mesh"));
    assert_eq!(world.pod.evidence.as_deref(), Some(r#"{"mesh":{"level":"PROVEN","detail":"seen"}}"#));
    world.finish("x");
    assert_eq!(world.work(), 1, "completing and the gate");
    assert!(world.asked().is_empty(), "not asked before the pod is Ready");
    world.kubelet();
    assert_eq!(world.work(), 0);
    assert_eq!(world.asked(), [("mesh", Phase::Complete)]);
    assert_eq!(world.answers("mesh"), 1, "the finalizer, the end and service-available");
    assert_eq!(world.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    assert_eq!(world.pod.asked, None);
}

#[test]
fn one_operation_with_a_consumer_before_the_gate_costs_five_writes() {
    let mut world = in_service([hook("mesh")]);
    world.begin("x", "update");
    let mut writes = world.work();
    world.kubelet();
    writes += world.answers("mesh");
    world.finish("x");
    writes += world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)], "containers are ready");
    assert_eq!(world.pod.gate, Some(ConditionStatus::False), "it waits for the hook");
    writes += world.answers("mesh");
    assert_eq!(world.pod.gate, Some(ConditionStatus::True));
    world.kubelet();
    writes += world.work();
    assert_eq!(world.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    assert_eq!(writes, 5);
}

#[test]
fn a_new_pod_is_not_ready_before_hooks_have_taken_it_in() {
    let mut world = created([hook("mesh"), after_gate("late")]);
    world.containers(false);
    world.work();
    assert!(world.asked().is_empty() && world.pod.gate.is_none(), "the containers aren't ready");
    assert!(world.told().contains("containers to be ready, and then for hook"), "{}", world.told());
    world.containers(true);
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)]);
    assert!(world.told().contains("waits for hook mesh to take it in"), "{}", world.told());
    assert_eq!(world.answers("mesh"), 1, "the finalizer and the gate");
    assert!(world.pod.gate == Some(ConditionStatus::True) && world.asked().is_empty());
    world.kubelet();
    world.work();
    assert_eq!(world.asked(), [("late", Phase::Complete)], "asked of a pod that is Ready");
    assert!(!world.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    assert_eq!(world.answers("late"), 1);
    assert!(world.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    world.assert_held_by_exactly_its_hooks();
}

#[test]
fn a_later_hook_takes_nothing_out_of_service() {
    let mut world = in_service([]);
    world.register(Hook { deadline_policy: DeadlinePolicy::Proceed, ..hook("late") });
    assert_eq!(world.work(), 0, "a pod at rest isn't written to before it answers");
    assert_eq!(world.asked(), [("late", Phase::Complete)]);
    world.sleep(10_000);
    assert_eq!(world.work(), 0, "nothing waits for it, so there is no deadline");
    assert_eq!(world.look().wake, None);
    assert!(world.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    assert_eq!(world.answers("late"), 1, "finalizer and expectation");
    world.assert_held_by_exactly_its_hooks();
}

#[test]
fn hooks_before_the_gate_let_go_first() {
    let before = Hook { prepare_timing: GateTiming::BeforeGate, ..hook("balancer") };
    let mut world = in_service([before, hook("mesh")]);
    world.begin("x", "update");
    world.work();
    assert_eq!(world.asked(), [("balancer", Phase::Prepare)]);
    assert_eq!(world.pod.gate, Some(ConditionStatus::True), "it serves while the balancer lets go");
    assert!(world.told().contains("waits for hook balancer to let go of the pod"), "{}", world.told());
    world.sleep(30);
    assert_eq!(world.answers("balancer"), 1, "its finalizer and the gate");
    assert_eq!(world.pod.gate, Some(ConditionStatus::False));
    assert_eq!(world.asked(), [("mesh", Phase::Prepare)]);
    let mesh = world.question("mesh").clone();
    assert!(mesh.deadline.0 > world.now + 50 * SECOND, "its time began when it was asked");
    assert_eq!(world.answers("mesh"), 1);
    assert!(world.pod.has(Stage::Operate, "x"));
}

#[test]
fn orders_are_asked_one_after_the_other() {
    let ordered = |name: &str, order| Hook { order, ..hook(name) };
    let mut world = created([ordered("a", 1), ordered("b", 2), ordered("c", 2)]);
    world.work();
    assert_eq!(world.asked(), [("b", Phase::Complete), ("c", Phase::Complete)]);
    world.answers("c");
    assert_eq!(world.asked(), [("b", Phase::Complete)]);
    world.answers("b");
    assert_eq!(world.asked(), [("a", Phase::Complete)]);
    world.answers("a");
    world.kubelet();
    world.work();
    world.begin("x", "update");
    world.work();
    assert_eq!(world.asked(), [("a", Phase::Prepare)]);
    world.answers("a");
    assert_eq!(world.asked(), [("b", Phase::Prepare), ("c", Phase::Prepare)]);
}

#[test]
fn operations_wait_for_pre_checks_of_their_type() {
    let guard = Hook { operation_types: vec!["update".to_owned()], ..with("guard", &[Phase::PreCheck]) };
    let mut world = in_service([guard, with("all", &[Phase::PreCheck])]);
    world.begin("x", "update");
    world.work();
    assert_eq!(world.asked(), [("all", Phase::PreCheck), ("guard", Phase::PreCheck)]);
    assert_eq!(world.question("guard").operations, [("x".to_owned(), "update".to_owned())]);
    let since = world.pod.labels[&Stage::PreCheck.key("x")].parse().unwrap();
    assert_eq!(world.question("guard").since, UnixNanos(since));
    assert_eq!(world.answers("all"), 0);
    assert!(world.told().contains("operation x (update) waits for hook guard to agree that it starts"));
    world.answer("guard", &Answer::Rejected { reason: "frozen".to_owned() });
    assert_eq!(world.work(), 0);
    let plan = world.look();
    assert!(plan.notes.iter().any(|note| note.event == HookEvent::Rejected("frozen".to_owned())));
    assert!(world.told().contains("hook guard: PRE_CHECK since"), "{}", world.told());
    assert!(world.told().contains("says no: frozen; due by"), "{}", world.told());
    world.answers("guard");
    assert!(world.pod.has(Stage::Operate, "x"));
    world.begin("y", "restart");
    world.work();
    assert_eq!(world.asked(), [("all", Phase::PreCheck)], "guard has no part in restarts");
}

#[test]
fn results_wait_for_post_checks() {
    let mut world = in_service([with("judge", &[Phase::PostCheck])]);
    world.begin("x", "update");
    world.work();
    world.finish("x");
    world.work();
    assert_eq!(world.asked(), [("judge", Phase::PostCheck)]);
    assert!(world.told().contains("is done and waits for hook judge to accept its result"));
    assert_eq!(world.pod.gate, Some(ConditionStatus::False));
    world.answers("judge");
    world.settle_with_hooks();
    assert_eq!(world.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
}

/// A pod that waits for `mesh` to let go, and its deadline in a moment.
#[test]
fn an_undone_operation_makes_a_hook_take_the_pod_in_again() {
    let mut world = in_service([hook("mesh")]);
    world.begin("x", "update");
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Prepare)]);
    world.undo("x", "update");
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)]);
    assert!(world.is_held_by("mesh"), "it may not have begun to let go");
    assert_eq!(world.pod.gate, Some(ConditionStatus::False), "or it may have");
    world.restart();
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)], "also for a new process");
    world.answers("mesh");
    assert_eq!(world.pod.gate, Some(ConditionStatus::True));
}

#[test]
fn a_hook_that_may_have_taken_the_pod_in_is_asked_to_let_go() {
    let mut world = created([hook("mesh")]);
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)]);
    world.begin("x", "update");
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Prepare)]);
    assert!(world.is_held_by("mesh") && !world.pod.has(Stage::Operate, "x"));
    world.answers("mesh");
    assert!(world.pod.has(Stage::Operate, "x"));
}

#[test]
fn expectations_are_corrected_and_those_of_others_stay() {
    let mut world = in_service([after_gate("mesh")]);
    let foreign = r#"{"expectedFinalizers":{"LifecycleHook//gone":"prot.podopslifecycle.kusionstack.io/lifecyclehook-0","Slb/d/a":"example.com/not-ours"},"more":1}"#;
    world.pod.expected = Some(foreign.to_owned());
    assert_eq!(world.work(), 1, "what is gone holds the pod up");
    let corrected: serde_json::Value = serde_json::from_str(world.pod.expected.as_ref().unwrap()).unwrap();
    let wanted = serde_json::json!({
        "expectedFinalizers": {employer_of("mesh"): finalizer_of("mesh"), "Slb/d/a": "example.com/not-ours"},
        "more": 1,
    });
    assert_eq!(corrected, wanted);
    world.pod.expected = Some(r#"{"expectedFinalizers":{"Slb/d/a":"example.com/not-ours"}}"#.to_owned());
    assert_eq!(world.work(), 0, "what is missing can wait for the next write");
    world.begin("x", "update");
    assert_eq!(world.work(), 1);
    assert!(world.pod.expected.as_ref().unwrap().contains(&employer_of("mesh")));
    world.pod.expected = Some("no JSON".to_owned());
    assert_eq!(world.work(), 0, "nobody can tell what it expects: it is left to whoever wrote it");
}

#[test]
fn third_parties_are_waited_for_as_well() {
    let mut world = World::created(true, true);
    world.register(after_gate("mesh"));
    world.settle_with_hooks();
    world.begin("x", "update");
    world.work();
    world.kubelet();
    world.answers("mesh");
    assert!(!world.pod.has(Stage::Operate, "x"));
    assert!(world.told().contains("waits for the owners of prot."), "{}", world.told());
    world.traffic();
    world.work();
    assert!(world.pod.has(Stage::Operate, "x"));
}

#[test]
fn the_explanation_names_hook_phase_time_deadline_and_what_happens() {
    let mut world = in_service([Hook { deadline_policy: DeadlinePolicy::Proceed, ..after_gate("mesh") }]);
    world.begin("x", "update");
    world.work();
    world.kubelet();
    world.answer("mesh", &Answer::Open { message: "3 sessions are open".to_owned() });
    assert_eq!(
        world.told(),
        "operation x (update) waits for hook mesh to let go of the pod; its permission follows. \
         hook mesh: PREPARE since 2023-11-14T22:13:20Z, 3 sessions are open; \
         at 2023-11-14T22:14:20Z the pod goes on without it"
    );
}

#[test]
fn what_was_answered_is_told_with_its_evidence() {
    let mut world = in_service([hook("mesh")]);
    world.begin("x", "update");
    world.work();
    world.answer("mesh", &done());
    let notes = world.look().notes;
    let since = world.question("mesh").since;
    assert!(
        notes.iter().any(|note| note.hook == "mesh"
            && note.phase == Phase::Prepare
            && note.since == since
            && note.event == HookEvent::Done(EvidenceLevel::Proven)),
        "{notes:?}"
    );
}

#[test]
fn a_pod_that_is_opted_out_keeps_nothing_of_hooks() {
    let mut world = in_service([hook("mesh")]);
    world.pod.labels.remove(keys::CONTROL_LABEL);
    let plan = world.look();
    assert_eq!(plan.finalizers.remove, [finalizer_of("mesh")]);
    assert!(plan.annotations.contains(&(keys::AVAILABLE_CONDITIONS, None)), "{plan:?}");
    assert!(plan.labels.is_empty() && plan.gate.is_none() && plan.open.is_empty());
}
