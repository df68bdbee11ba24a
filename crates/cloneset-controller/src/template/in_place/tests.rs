//! Changes between templates.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Change, change};
use crate::template::in_place_change::{EnvMetadata, InPlaceChange};
use crate::template::resources::Resources;
use crate::template::test_pods::any_json;

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web", "version": "1"}, "annotations": {"config": "a"}},
        "spec": {
            "initContainers": [{"name": "init", "image": "init:1"}],
            "containers": [
                {"name": "app", "image": "app:1", "env": [
                    {"name": "VERSION", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['version']"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "log", "image": "log:1", "newField": {"a": [1, 2]}},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    })
}

/// Returns what changes if `edit` is applied to the template.
fn after(edit: impl FnOnce(&mut Value)) -> Change {
    let mut new = template();
    edit(&mut new);
    change(&template(), &new)
}

fn in_place(edit: impl FnOnce(&mut Value)) -> InPlaceChange {
    match after(edit) {
        Change::InPlace(change) => change,
        other => panic!("{other:?}"),
    }
}

fn reason(edit: impl FnOnce(&mut Value)) -> String {
    match after(edit) {
        Change::Recreate(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Pods that run can't get the readiness gate, and those that opt out during an update would stay out of service.
#[test]
fn pods_that_opt_in_or_out_are_recreated() {
    let mut opted_in = template();
    opted_in["metadata"]["labels"]["kusionstack.io/control"] = json!("true");
    for (old, new) in [(template(), opted_in.clone()), (opted_in.clone(), template())] {
        assert!(
            matches!(change(&old, &new), Change::Recreate(reason) if reason.contains("kusionstack.io/control"))
        );
    }
    let mut other = opted_in.clone();
    other["spec"]["containers"][0]["image"] = json!("app:2");
    assert!(matches!(change(&opted_in, &other), Change::InPlace(_)));
}

#[test]
fn equal_templates_are_unchanged() {
    assert_eq!(after(|_| {}), Change::Unchanged);
    let from_another_program = after(|new| {
        new["metadata"]["creationTimestamp"] = Value::Null;
        new["spec"]["securityContext"] = json!({});
        new["spec"]["containers"][1]["resources"] = json!({});
        new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(1);
    });
    assert_eq!(from_another_program, Change::Unchanged);
    assert_eq!(
        after(|new| new["metadata"]["name"] = json!("ignored")),
        Change::Unchanged,
        "pods do not get it"
    );
}

#[test]
fn images_change_in_place() {
    let change = in_place(|new| {
        new["spec"]["containers"][0]["image"] = json!("app:2");
        new["spec"]["containers"][1]["image"] = json!("log:2");
    });
    let images = texts(&[("app", "app:2"), ("log", "log:2")]);
    assert_eq!(change, InPlaceChange { images, ..InPlaceChange::default() });
}

#[test]
fn metadata_changes_in_place() {
    let change = in_place(|new| {
        new["metadata"]["labels"] = json!({"version": "1", "new": "x"});
        new["metadata"]["annotations"]["config"] = json!("b");
        new["metadata"]["finalizers"] = json!(["example.com/a"]);
    });
    let expected = InPlaceChange {
        labels: [("app".to_owned(), None), ("new".to_owned(), Some("x".to_owned()))].into(),
        annotations: [("config".to_owned(), Some("b".to_owned()))].into(),
        finalizers: [("example.com/a".to_owned(), true)].into(),
        ..InPlaceChange::default()
    };
    assert_eq!(change, expected);
}

#[test]
fn a_container_with_the_label_in_its_environment_starts_again() {
    let change = in_place(|new| new["metadata"]["labels"]["version"] = json!("2"));
    let env = EnvMetadata { labels: texts(&[("version", "2")]), annotations: BTreeMap::new() };
    assert_eq!(change, InPlaceChange { env: [("app".to_owned(), env)].into(), ..InPlaceChange::default() });
    assert_eq!(change.restarts(), ["app"].into());
}

#[test]
fn environments_that_cannot_follow_need_another_pod() {
    let removed = reason(|new| {
        new["metadata"]["labels"].as_object_mut().unwrap().remove("version");
    });
    assert_eq!(removed, "the environment of the container app contains version, which is removed");

    let mut old = template();
    let path =
        json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['config']"}}}]);
    old["spec"]["initContainers"][0]["env"] = path;
    let mut new = old.clone();
    new["metadata"]["annotations"]["config"] = json!("b");
    let expected = "the environment of the init container init contains config, which changes".to_owned();
    assert_eq!(change(&old, &new), Change::Recreate(expected));
}

#[test]
fn resources_change_in_place() {
    let change =
        in_place(|new| new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1500m"));
    let resources = Resources { requests: texts(&[("cpu", "1500m")]), ..Resources::default() };
    assert_eq!(change.resources, [("app".to_owned(), resources)].into());
    let change = in_place(|new| new["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": 4}));
    let resources = Resources { limits: texts(&[("cpu", "4")]), ..Resources::default() };
    assert_eq!(change.resources, [("app".to_owned(), resources)].into(), "a limit is added");
}

#[test]
fn other_resources_need_another_pod() {
    let with = |edit: fn(&mut Value)| reason(|new| edit(&mut new["spec"]["containers"][0]["resources"]));
    assert_eq!(
        with(|it| *it = json!({"requests": {"cpu": "1"}})),
        "spec.containers[app].resources: the request of memory is removed"
    );
    assert_eq!(
        with(|it| it["limits"] = json!({"example.com/gpu": 1})),
        "spec.containers[app].resources: the limit of example.com/gpu changes"
    );
    assert_eq!(
        with(|it| it["claims"] = json!([{"name": "a"}])),
        "spec.containers[app].resources: claims changes"
    );
    assert_eq!(
        with(|it| it["requests"] = json!([1])),
        "spec.containers[app].resources: the resources are no map"
    );
}

#[test]
fn another_qos_class_needs_another_pod() {
    let with = |resources: Value| {
        let containers = json!([{"name": "app", "image": "app:1", "resources": resources}]);
        json!({"spec": {"containers": containers}})
    };
    let burstable = with(json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}));
    let guaranteed = with(json!({"limits": {"memory": "1Gi", "cpu": "1"}, "requests": {"cpu": "1"}}));
    let reason = "the QoS class changes from Burstable to Guaranteed".to_owned();
    assert_eq!(change(&burstable, &guaranteed), Change::Recreate(reason));
    let reason = "the QoS class changes from BestEffort to Guaranteed".to_owned();
    assert_eq!(change(&with(json!({})), &guaranteed), Change::Recreate(reason));
}

#[test]
fn less_memory_needs_the_policy() {
    let mut old = template();
    old["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "2Gi"}});
    let mut new = old.clone();
    new["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "1Gi"}});
    assert!(matches!(change(&old, &new), Change::Recreate(reason) if reason.contains("less memory")));
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    old["spec"]["containers"][0]["resizePolicy"] = policy.clone();
    new["spec"]["containers"][0]["resizePolicy"] = policy;
    let both = Resources { limits: texts(&[("memory", "1Gi")]), requests: texts(&[("memory", "1Gi")]) };
    let Change::InPlace(found) = change(&old, &new) else { panic!("not in place") };
    assert_eq!(found.resources, [("app".to_owned(), both)].into(), "the request follows the limit");
}

#[test]
fn all_else_needs_another_pod() {
    for (expected, edit) in [
        (
            "spec.volumes[data].emptyDir.medium changes",
            (|new| new["spec"]["volumes"][0]["emptyDir"]["medium"] = json!("Memory")) as fn(&mut Value),
        ),
        ("spec.initContainers[init].image changes", |new| {
            new["spec"]["initContainers"][0]["image"] = json!("init:2");
        }),
        ("spec.containers[log].newField.a[1] changes", |new| {
            new["spec"]["containers"][1]["newField"]["a"][1] = json!(3);
        }),
        ("spec.hostNetwork changes", |new| new["spec"]["hostNetwork"] = json!(true)),
        ("the names or the order of the containers change", |new| {
            new["spec"]["containers"].as_array_mut().unwrap().swap(0, 1);
        }),
        ("the names or the order of the containers change", |new| {
            new["spec"]["containers"].as_array_mut().unwrap().pop();
        }),
        ("spec.containers[app].image is added or removed", |new| {
            new["spec"]["containers"][0].as_object_mut().unwrap().remove("image");
        }),
        ("the template has no spec", |new| *new = json!(1)),
        ("the template has no containers", |new| new["spec"]["containers"] = json!({})),
        ("metadata.labels[app] of the template is no text", |new| {
            new["metadata"]["labels"]["app"] = json!(1)
        }),
    ] {
        assert_eq!(reason(edit), expected);
    }
}

proptest! {
    #[test]
    fn no_template_panics(
        old in any_json(),
        new in any_json(),
        in_spec in any_json(),
        at in "/(spec/(containers|volumes|initContainers)|metadata/(labels|annotations))(/0)?",
    ) {
        let _ = change(&old, &new);
        for place in [at.as_str(), "/spec/containers/0/resources", "/spec/containers/0/env"] {
            let mut changed = template();
            if let Some(place) = changed.pointer_mut(place) {
                *place = in_spec.clone();
            }
            let _ = change(&template(), &changed);
            let _ = change(&changed, &template());
        }
    }
}
