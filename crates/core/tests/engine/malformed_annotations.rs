//! Annotations that anybody who may write a pod can set to any text. The services abort on a panic, so one text would
//! stop every replica that reads the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use podward_core::hooks::{Hook, HookSet, NoHookAnswers, PodHooks};
use podward_core::keys::{self, Stage};
use podward_core::{ConditionStatus, NoRules, PodFacts, PodPlan, PodView, UnixNanos, plan};

use crate::hook_model::hook;

/// Returns the plan for a pod whose hook was asked to release it and has not answered.
fn plan_with(available_conditions: &str) -> PodPlan {
    let hooks = HookSet::new([hook("balancer")]);
    let matching: Vec<Arc<Hook>> = hooks.iter().cloned().collect();
    let labels = BTreeMap::from([
        (keys::CONTROL_LABEL.to_owned(), "true".to_owned()),
        (Stage::Operating.key("a"), "1".to_owned()),
        (Stage::OperationType.key("a"), "update".to_owned()),
        (Stage::PreChecked.key("a"), "1".to_owned()),
        (Stage::Preparing.key("a"), "1".to_owned()),
        (Stage::UndoOperationType.key("a"), "update".to_owned()),
    ]);
    let facts = PodFacts {
        hook_requests: Some(r#"{"balancer":{"phase":"PREPARE","since":1}}"#),
        ..PodFacts::default()
    };
    let pod = PodView {
        labels: &labels,
        available_conditions: Some(available_conditions),
        finalizers: &[podward_core::hooks::hook_finalizer("balancer")],
        has_gate: true,
        gate: Some(ConditionStatus::True),
        ready: true,
        terminating: false,
        facts,
    };
    let consumers = PodHooks { hooks: &matching, known: &hooks, answers: &NoHookAnswers };
    plan(&pod, &consumers, &NoRules, UnixNanos(7))
}

#[test]
fn malformed_expected_finalizers_do_not_stop_the_controller() {
    let texts = [
        "[]",
        "[1]",
        "\"a\"",
        "7",
        "{",
        "",
        r#"{"expectedFinalizers":[]}"#,
        r#"{"expectedFinalizers":"a"}"#,
        r#"{"expectedFinalizers":{"a":7}}"#,
    ];
    for text in texts {
        let plan = plan_with(text);
        assert!(!plan.labels.set.contains_key(keys::SERVICE_AVAILABLE), "{text}");
        // What cannot be read is not replaced.
        assert!(!plan.annotations.iter().any(|(key, _)| *key == keys::AVAILABLE_CONDITIONS), "{text}");
    }
}

#[test]
fn a_pod_is_not_available_while_a_hook_is_in_doubt() {
    for text in ["null", "{}", r#"{"expectedFinalizers":null}"#, r#"{"expectedFinalizers":{}}"#] {
        let plan = plan_with(text);
        assert!(!plan.labels.set.contains_key(keys::SERVICE_AVAILABLE), "{text}");
    }
}
