//! Sets that the definition of OpenKruise accepts, and Podward's own does not.
#![allow(missing_docs, clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podward_api::CloneSet;
use serde_json::{Value, json};

/// Returns a set with the fields that must be set, after a change to its spec.
fn set(change: &Value) -> CloneSet {
    let mut document = json!({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main"}]}},
    }});
    json_patch::merge(&mut document["spec"], change);
    serde_json::from_value(document).unwrap()
}

fn update(field: &str, value: Value) -> Value {
    let mut strategy = json!({});
    strategy[field] = value;
    json!({"updateStrategy": strategy})
}

fn hook(hook: Value) -> Value {
    let mut lifecycle = json!({});
    lifecycle["preDelete"] = hook;
    json!({"lifecycle": lifecycle})
}

#[track_caller]
fn is_rejected(cases: impl IntoIterator<Item = (Value, &'static str)>) {
    for (change, words) in cases {
        let found = set(&change).check().map_err(|error| error.to_string());
        assert!(found.as_ref().is_err_and(|found| found.starts_with(words)), "{change}: {found:?}");
    }
}

#[test]
fn what_is_neither_a_number_of_pods_nor_a_percentage_is_rejected() {
    let scale = |amount: Value| json!({"scaleStrategy": {"maxUnavailable": amount}});
    is_rejected([
        (update("partition", json!("100")), "spec.updateStrategy.partition: \"100\" must be a number"),
        (update("partition", json!("101%")), "spec.updateStrategy.partition: \"101%\" must be"),
        (update("partition", json!(-1)), "spec.updateStrategy.partition: \"-1\" must be"),
        (update("partition", json!("+5%")), "spec.updateStrategy.partition: \"+5%\" must be"),
        (
            update("partition", json!(3_000_000_000_u64)),
            "spec.updateStrategy.partition: \"3000000000\" must be",
        ),
        (update("maxUnavailable", json!("")), "spec.updateStrategy.maxUnavailable: \"\" must be"),
        (update("maxUnavailable", json!(1.5)), "spec.updateStrategy.maxUnavailable: \"1.5\" must be"),
        (update("maxSurge", json!("1")), "spec.updateStrategy.maxSurge: \"1\" must be"),
        (scale(json!("1")), "spec.scaleStrategy.maxUnavailable: \"1\" must be"),
        (
            json!({"updateStrategy": {"maxUnavailable": "0%", "maxSurge": 0}}),
            "spec.updateStrategy.maxUnavailable: maxUnavailable and maxSurge must not both be 0",
        ),
        (
            json!({"updateStrategy": {"type": "InPlaceOnly", "maxSurge": "5%"}}),
            "spec.updateStrategy.maxSurge: must be 0 with the type InPlaceOnly",
        ),
    ]);
    let valid = json!({"replicas": 0, "updateStrategy": {"partition": "100%", "maxUnavailable": 0, "maxSurge": null}});
    assert_eq!(set(&valid).check(), Ok(()));
    assert_eq!(set(&scale(json!("150%"))).check(), Ok(()));
    let read = set(&update("partition", json!(7))).spec.update_strategy;
    assert_eq!((read.partition, read.max_surge), (IntOrString::Int(7), IntOrString::Int(0)));
}

#[test]
fn other_values_are_rejected() {
    let term = json!({"weight": 1, "matchSelector": {"matchLabels": {"a": "b"}}});
    let both = json!({"orderPriority": [{"orderedKey": "a"}], "weightPriority": [term]});
    let weight = |weight: i32, selector: Value| {
        let terms = json!([{"weight": weight, "matchSelector": selector}]);
        update("priorityStrategy", json!({"weightPriority": terms}))
    };
    let label = json!({"metadata": {"labels": {"apps.kruise.io/specified-delete": "true"}}});
    let term = "spec.updateStrategy.priorityStrategy.weightPriority[0]";
    is_rejected([
        (update("type", json!("RollingUpdate")), "spec.updateStrategy.type: is not supported; it must be"),
        (json!({"volumeClaimTemplates": {}}), "spec.volumeClaimTemplates[0]: is not a PersistentVolumeClaim"),
        (
            json!({"template": label}),
            "spec.template.metadata.labels: must not have apps.kruise.io/specified-",
        ),
        (json!({"replicas": -1}), "spec.replicas: -1 is not valid"),
        (json!({"revisionHistoryLimit": -1}), "spec.revisionHistoryLimit: -1 is not valid"),
        (json!({"minReadySeconds": -1}), "spec.minReadySeconds: -1 is not valid"),
        (
            update("inPlaceUpdateStrategy", json!({"gracePeriodSeconds": -1})),
            "spec.updateStrategy.inPlaceUpdateStrategy.gracePeriodSeconds: -1 is not valid",
        ),
        (json!({"progressDeadlineSeconds": 0}), "spec.progressDeadlineSeconds: must be greater than"),
        (
            json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5}),
            "spec.progressDeadlineSeconds: must be greater than minReadySeconds",
        ),
        (update("priorityStrategy", both), "spec.updateStrategy.priorityStrategy: at most one of"),
    ]);
    for (change, words) in [
        (weight(101, json!({"matchLabels": {"a": "b"}})), format!("{term}.weight: 101 is not valid")),
        (weight(1, json!({})), format!("{term}.matchSelector: must not be empty")),
    ] {
        let found = set(&change).check().unwrap_err().to_string();
        assert!(found.starts_with(&words), "{found}");
    }
}

#[test]
fn markers_that_pods_cannot_have_are_rejected() {
    let label = |key: &str, value: &str| {
        let mut labels = json!({});
        labels[key] = value.into();
        hook(json!({"labelsHandler": labels}))
    };
    let finalizer = |name: &str| hook(json!({"finalizersHandler": [name]}));
    let labels = "spec.lifecycle.preDelete.labelsHandler: ";
    let finalizers = "spec.lifecycle.preDelete.finalizersHandler: ";
    is_rejected([
        (label("in use", ""), labels),
        (label("Example.com/in-use", ""), labels),
        (label("a..b/in-use", ""), labels),
        (label("in-use", "-"), labels),
        (finalizer("in-use"), finalizers),
        (finalizer("/in-use"), finalizers),
        (finalizer("example.com/"), finalizers),
        (finalizer("a.-b/in-use"), finalizers),
    ]);
    for change in [label("in-use", ""), label("example.com/in-use", "a_b"), finalizer("example.com/in-use")] {
        assert_eq!(set(&change).check(), Ok(()), "{change}");
    }
}

/// OpenKruise accepts it, and it has no effect.
#[test]
fn mark_pod_not_ready_without_a_marker_is_valid() {
    assert_eq!(set(&hook(json!({"markPodNotReady": true}))).check(), Ok(()));
}
