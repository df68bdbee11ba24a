use std::sync::Arc;

use kube::ResourceExt;
use podward_core::hooks::{
    DeadlinePolicy, Evidence, EvidenceLevel, FailurePolicy, GateTiming, Hook, HookAnswer, HookAnswers,
    HookPhase, HookQuestion, HookSet, NoHookAnswers, Selector,
};
use podward_core::keys::{CONTROL_LABEL, SERVICE_READY_GATE};
use podward_core::{NoRules, PostCheckRejection, UnixNanos};
use serde_json::json;

use super::*;

/// A pod with the operation `a`, the gate in this state and these other labels.
fn pod(gate: Option<&str>, labels: &[&str]) -> CachedPod {
    pod_with_ready("True", gate, labels)
}

fn pod_with_ready(ready: &str, gate: Option<&str>, labels: &[&str]) -> CachedPod {
    let mut all = json!({
        CONTROL_LABEL: "true", Stage::Operating.key("a"): "1", Stage::OperationType.key("a"): "update",
    });
    labels.iter().for_each(|label| all[label] = json!("1"));
    let gate = gate.map(|status| json!({"type": SERVICE_READY_GATE, "status": status}));
    let conditions: Vec<_> = gate.into_iter().chain([json!({"type": "Ready", "status": ready})]).collect();
    serde_json::from_value(json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "labels": all},
        "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"phase": "Running", "conditions": conditions},
    }))
    .unwrap()
}

/// A hook that drains pods.
fn hook(prepare_timing: GateTiming) -> Hook {
    Hook {
        name: "balancer".to_owned(),
        pod_selector: Selector::default(),
        namespace_selector: Selector::default(),
        phases: vec![HookPhase::Prepare],
        operation_types: Vec::new(),
        order: 0,
        deadline_nanoseconds: 60_000_000_000,
        deadline_policy: DeadlinePolicy::Hold,
        failure_policy: FailurePolicy::Fail,
        post_check_rejection: PostCheckRejection::Hold,
        prepare_timing,
        complete_timing: GateTiming::AfterGate,
    }
}

struct Drained;

impl HookAnswers for Drained {
    fn answer(&self, _: &HookQuestion) -> Option<HookAnswer> {
        Some(HookAnswer::Done(Evidence { level: EvidenceLevel::Proven, detail: String::new() }))
    }
}

/// Returns whether the next write takes `pod` out of service and the gate that it writes. Applies its other changes.
fn write(pod: &mut CachedPod, hooks: &[Hook], answers: &dyn HookAnswers) -> (bool, Option<ConditionStatus>) {
    let known = HookSet::new(hooks.iter().cloned());
    let hooks: Vec<_> = hooks.iter().cloned().map(Arc::new).collect();
    let hooks = PodHooks { hooks: &hooks, known: &known, answers };
    let plan = plan(&pod.view(), &hooks, &NoRules, UnixNanos(1_000_000_000));
    let leaves = leaves_service(&pod.view(), &plan);
    plan.labels.apply(pod.labels_mut());
    plan.finalizers.apply(pod.finalizers_mut());
    for (key, text) in &plan.annotations {
        let text = text.clone().unwrap_or_default();
        pod.annotations_mut().insert((*key).to_owned(), text);
    }
    (leaves, plan.gate)
}

const OFF: Option<ConditionStatus> = Some(ConditionStatus::False);

#[test]
fn a_pod_leaves_service_with_the_gate_if_no_hook_is_asked_before() {
    for hooks in [vec![], vec![hook(GateTiming::AfterGate)]] {
        let mut serving = pod(Some("True"), &[SERVICE_AVAILABLE]);
        assert_eq!(write(&mut serving, &hooks, &NoHookAnswers), (true, OFF), "{hooks:?}");
        assert!(!serving.labels().contains_key(SERVICE_AVAILABLE));
    }
}

#[test]
fn a_pod_leaves_service_when_a_hook_before_the_gate_begins_to_drain_it() {
    let hooks = [hook(GateTiming::BeforeGate)];
    let mut serving = pod(Some("True"), &[SERVICE_AVAILABLE]);
    assert_eq!(write(&mut serving, &hooks, &NoHookAnswers), (true, None));
    assert!(!serving.labels().contains_key(SERVICE_AVAILABLE));
    assert_eq!(write(&mut serving, &hooks, &NoHookAnswers), (false, None));
    assert_eq!(write(&mut serving, &hooks, &Drained), (false, OFF), "it has left already");
}

#[test]
fn a_pod_that_was_not_available_leaves_service_if_its_gate_is_on() {
    let before = [hook(GateTiming::BeforeGate)];
    assert_eq!(write(&mut pod(Some("True"), &[]), &[], &NoHookAnswers), (true, OFF));
    assert_eq!(write(&mut pod(Some("True"), &[]), &before, &NoHookAnswers), (true, None));
    assert_eq!(write(&mut pod(Some("False"), &[]), &[], &NoHookAnswers), (false, None));
    assert_eq!(write(&mut pod(Some("False"), &[]), &before, &NoHookAnswers), (false, None));
}

#[test]
fn a_pod_leaves_service_once_for_several_operations() {
    let mut pod = pod(Some("True"), &[SERVICE_AVAILABLE]);
    let hooks = [hook(GateTiming::BeforeGate)];
    assert_eq!(write(&mut pod, &hooks, &NoHookAnswers), (true, None));
    for (stage, value) in [(Stage::Operating, "1"), (Stage::OperationType, "restart")] {
        pod.labels_mut().insert(stage.key("b"), value.to_owned());
    }
    assert_eq!(write(&mut pod, &hooks, &NoHookAnswers), (false, None));
    assert!(pod.labels().contains_key(&Stage::Preparing.key("b")));
}

#[test]
fn a_pod_that_is_not_ready_any_more_waits_for_no_turn() {
    let mut failed = pod_with_ready("False", Some("True"), &[SERVICE_AVAILABLE]);
    for stage in [Stage::Operating, Stage::OperationType] {
        failed.labels_mut().remove(&stage.key("a"));
    }
    assert_eq!(write(&mut failed, &[], &NoHookAnswers), (false, None));
    assert!(!failed.labels().contains_key(SERVICE_AVAILABLE));
}
