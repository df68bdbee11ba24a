//! The patches of the mutating webhook, applied to whole pods: they do what they say, and touch nothing else.

use podward_core::hooks::{consumer_key_of, hook_finalizer};
use podward_core::keys::{self, Key, SERVICE_READY_GATE, Stage};
use podward_core::{Pod, on_create, on_update, without_managed_fields};
use serde_json::{Value, json};

use crate::words::NOW;

/// A pod with much in it that is none of Podward's business.
fn full_pod(labels: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generateName": "web-",
            "labels": labels,
            "annotations": {"a.io/b": "~1/~0", keys::AVAILABLE_CONDITIONS: "{}"},
            "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "o"}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "containers": [{"name": "app", "image": "web:1", "resources": {"limits": {"cpu": "1"}}}],
            "futureField": {"kept": true},
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": SERVICE_READY_GATE, "status": "False"}]},
    })
}

fn read(document: &Value) -> Pod {
    serde_json::from_value(document.clone()).unwrap()
}

fn created(document: &Value, inject: bool) -> Value {
    let mut patched = document.clone();
    json_patch::patch(&mut patched, &on_create(&read(document), inject, &[], NOW)).unwrap();
    patched
}

fn at<'v>(document: &'v Value, path: &str) -> Option<&'v Value> {
    document.pointer(path)
}

const CONTROL: &str = "/metadata/labels/kusionstack.io~1control";

#[test]
fn create_adds_the_gate() {
    let opted_in = json!({keys::CONTROL_LABEL: "true", "app": "web"});
    let gate = json!({"conditionType": SERVICE_READY_GATE});
    let other = json!({"conditionType": "example.com/other"});

    let mut pod = full_pod(opted_in);
    let mut expected = pod.clone();
    expected["spec"]["readinessGates"] = json!([gate]);
    assert_eq!(created(&pod, false), expected, "the list is made");

    pod["spec"]["readinessGates"] = json!([other]);
    expected["spec"]["readinessGates"] = json!([other, gate]);
    assert_eq!(created(&pod, false), expected, "appended");

    pod["spec"]["readinessGates"] = json!([]);
    expected["spec"]["readinessGates"] = json!([gate]);
    assert_eq!(created(&pod, false), expected, "appended to an empty list");

    pod["spec"]["readinessGates"] = Value::Null;
    assert_eq!(created(&pod, false), expected, "in the place of null");

    for there in [json!([gate]), json!([gate, other]), json!([other, gate])] {
        pod["spec"]["readinessGates"] = there;
        assert!(on_create(&read(&pod), false, &[], NOW).0.is_empty(), "present already");
    }
}

#[test]
fn create_opts_in_pods_of_labelled_namespaces() {
    let gates = "/spec/readinessGates/0/conditionType";
    let plain = full_pod(json!({"app": "web"}));
    assert!(on_create(&read(&plain), false, &[], NOW).0.is_empty(), "nobody asked");
    let injected = created(&plain, true);
    assert_eq!(at(&injected, CONTROL), Some(&json!("true")));
    assert_eq!(at(&injected, "/metadata/labels/app"), Some(&json!("web")));
    assert_eq!(at(&injected, gates), Some(&json!(SERVICE_READY_GATE)));

    let mut without_map = plain;
    without_map["metadata"].as_object_mut().unwrap().remove("labels");
    for document in [without_map, full_pod(Value::Null)] {
        let injected = created(&document, true);
        assert_eq!(at(&injected, "/metadata/labels"), Some(&json!({keys::CONTROL_LABEL: "true"})));
        assert_eq!(at(&injected, gates), Some(&json!(SERVICE_READY_GATE)));
    }

    for value in ["false", "", "True"] {
        let out = full_pod(json!({keys::CONTROL_LABEL: value}));
        assert!(on_create(&read(&out), true, &[], NOW).0.is_empty(), "{value:?} stays out");
    }
    let opted_in = full_pod(json!({keys::CONTROL_LABEL: "true"}));
    assert_eq!(created(&opted_in, true), created(&opted_in, false), "opted in by itself");
}

#[test]
fn create_names_the_consumers() {
    let expected = |document: &Value| {
        let text = document["metadata"]["annotations"][keys::AVAILABLE_CONDITIONS].as_str()?;
        serde_json::from_str::<Value>(text).ok().map(|mut text| text["expectedFinalizers"].take())
    };
    let with = |document: &Value, names: &[&str]| {
        let mut patched = document.clone();
        json_patch::patch(&mut patched, &on_create(&read(document), false, names, NOW)).unwrap();
        let again = on_create(&read(&patched), false, names, NOW);
        assert!(again.0.is_empty(), "once is enough: {again:?}");
        patched
    };
    let ours = json!({consumer_key_of("a"): hook_finalizer("a"), consumer_key_of("b"): hook_finalizer("b")});
    let mut pod = full_pod(json!({keys::CONTROL_LABEL: "true"}));
    let named = with(&pod, &["a", "b"]);
    assert_eq!(expected(&named), Some(ours.clone()));
    assert_eq!(named["metadata"]["annotations"]["a.io/b"], "~1/~0");
    pod["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(expected(&with(&pod, &["a", "b"])), Some(ours), "the map is made");

    let copied = with(&with(&pod, &["gone", "a"]), &["a"]);
    assert_eq!(
        expected(&copied),
        Some(json!({consumer_key_of("a"): hook_finalizer("a")})),
        "copied from another pod"
    );
    pod["metadata"]["finalizers"] =
        json!([hook_finalizer("a"), "example.com/f", hook_finalizer("b"), hook_finalizer("c")]);
    assert_eq!(
        with(&pod, &["a"])["metadata"]["finalizers"],
        json!(["example.com/f"]),
        "nobody holds a new pod"
    );

    let out = full_pod(json!({"app": "web"}));
    assert!(on_create(&read(&out), false, &["a"], NOW).0.is_empty(), "not opted in");
    pod["metadata"]["annotations"] = json!({keys::AVAILABLE_CONDITIONS: "no JSON"});
    assert_eq!(with(&pod, &["a"])["metadata"]["annotations"][keys::AVAILABLE_CONDITIONS], "no JSON");
}

#[test]
fn create_removes_labels_that_only_podward_sets() {
    let mut labels = json!({
        keys::CONTROL_LABEL: "true", "app": "web", keys::SERVICE_AVAILABLE: "1", keys::CREATING: "1", keys::STAY_OFFLINE: "1",
        keys::permission_key("T"): "1",
        Stage::Operating.key("begun"): "1", Stage::OperationType.key("begun"): "T",
        Stage::Operating.key("half"): "1",
        Stage::UndoOperationType.key("undone"): "T", Stage::Operating.key("undone"): "1",
    });
    for stage in Stage::OURS {
        labels[stage.key("copied")] = json!("1");
        labels[stage.key("begun")] = json!("1");
    }
    let patched = created(&full_pod(labels), false);
    let left = at(&patched, "/metadata/labels").unwrap();
    let expected = json!({
        keys::CONTROL_LABEL: "true", "app": "web", keys::CREATING: "1", keys::STAY_OFFLINE: "1",
        Stage::Operating.key("begun"): "1", Stage::OperationType.key("begun"): "T", Stage::PreCheck.key("begun"): "1",
        Stage::Operating.key("half"): "1", Stage::PreCheck.key("half"): left[Stage::PreCheck.key("half")],
    });
    assert_eq!(left, &expected);
    let injected = created(&full_pod(json!({keys::SERVICE_AVAILABLE: "1"})), true);
    assert_eq!(
        at(&injected, "/metadata/labels"),
        Some(&json!({keys::CONTROL_LABEL: "true"})),
        "also with inject"
    );
}

#[test]
fn create_removes_the_records_of_another_pod() {
    let records = [
        (keys::HOOK_REQUESTS, r#"{"mesh":{"phase":"COMPLETE","since":1}}"#),
        (keys::EVIDENCE, r#"{"mesh":{"level":"PROVEN","detail":"seen"}}"#),
        (keys::RESULT_REFUSED, r#"{"x":{"rule a/b":{"reason":"no","since":1}}}"#),
        (keys::BUSY_LIMITS, r#"{"x":"2026-01-01T10:00:00Z"}"#),
    ];
    let with = |labels: Value, records: &[(&str, &str)]| {
        let mut pod = full_pod(labels);
        for (key, text) in records {
            pod["metadata"]["annotations"][*key] = json!(text);
        }
        pod
    };
    let opted_in = json!({keys::CONTROL_LABEL: "true"});
    let clean = created(&full_pod(opted_in.clone()), false);
    assert_eq!(created(&with(opted_in.clone(), &records), false), clean);
    for record in records {
        assert_eq!(created(&with(opted_in.clone(), &[record]), false), clean, "{}", record.0);
    }
    let injected = created(&with(json!({"app": "web"}), &records), true);
    assert_eq!(injected, created(&full_pod(json!({"app": "web"})), true), "also with inject");
    let out = with(json!({"app": "web"}), &records);
    assert!(on_create(&read(&out), false, &[], NOW).0.is_empty(), "not opted in");
}

/// It may be of an earlier round, because anybody may have written labels of operations meanwhile.
#[test]
fn an_opt_in_removes_evidence() {
    let mut old =
        full_pod(json!({"app": "web", Stage::Operating.key("x"): "1", Stage::Preparing.key("x"): "1"}));
    old["metadata"]["annotations"][keys::EVIDENCE] = json!(r#"{"mesh":{"level":"PROVEN","detail":"seen"}}"#);
    let mut new = old.clone();
    new["metadata"]["labels"][keys::CONTROL_LABEL] = json!("true");
    let updated = |old: &Value, new: &Value| {
        let mut patched = new.clone();
        json_patch::patch(&mut patched, &on_update(Some(&read(old)), &read(new), NOW)).unwrap();
        patched
    };
    let opted_in = updated(&old, &new);
    assert!(opted_in["metadata"]["labels"][Stage::Preparing.key("x")].is_string(), "it stays out of service");
    assert_eq!(opted_in["metadata"]["annotations"].get(keys::EVIDENCE), None);
    assert_eq!(opted_in["metadata"]["annotations"]["a.io/b"], "~1/~0");
    assert_eq!(updated(&new, &new)["metadata"]["annotations"], new["metadata"]["annotations"], "in before");
    assert_eq!(updated(&old, &old), old, "out");
}

/// The document without the labels of the protocol.
fn rest_of(document: &Value) -> Value {
    let mut rest = document.clone();
    if let Some(labels) = rest.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| matches!(Key::parse(key), Key::Other));
    }
    rest
}

#[test]
fn update_touches_only_labels_of_the_protocol() {
    let base = json!({keys::CONTROL_LABEL: "true", "app": "web", "slash/ed": "x", "with~tilde.io/y": "z"});
    let with = |entries: &[(String, &str)]| {
        let mut labels = base.clone();
        for (key, value) in entries {
            labels[key] = json!(value);
        }
        full_pod(labels)
    };
    let begun = [(Stage::Operating.key("x"), "1"), (Stage::OperationType.key("x"), "T")];
    let granted: Vec<_> = begun
        .iter()
        .cloned()
        .chain([
            (Stage::PreChecked.key("x"), "1"),
            (Stage::Operate.key("x"), "1"),
            (keys::permission_key("T"), "1"),
        ])
        .collect();
    let undone: Vec<_> = granted.iter().cloned().chain([(Stage::UndoOperationType.key("x"), "T")]).collect();
    let rows = [
        ("begin", with(&[]), with(&begun)),
        ("finish", with(&granted), with(&granted[1..])),
        ("undo", with(&granted), with(&undone)),
        ("nothing of ours", with(&granted), with(&granted)),
    ];
    for (name, old, new) in rows {
        let patch = on_update(Some(&read(&old)), &read(&new), NOW);
        let mut patched = new.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        assert_eq!(rest_of(&patched), rest_of(&new), "{name}");
        assert_eq!(patched == new, name == "nothing of ours", "{name}: {patch:?}");
        assert!(on_update(Some(&read(&old)), &read(&patched), NOW).0.is_empty(), "{name}: once is enough");
    }
}

#[test]
fn update_leaves_pods_alone_that_did_not_opt_in() {
    let out = full_pod(json!({Stage::Operating.key("x"): "1", Stage::UndoOperationType.key("x"): "T"}));
    assert!(on_update(Some(&read(&out)), &read(&out), NOW).0.is_empty());
    let mut bare = out;
    bare["metadata"] = json!({"name": "web-0"});
    assert!(on_update(None, &read(&bare), NOW).0.is_empty());
}

#[test]
fn managed_fields_are_removed_from_new_pods_that_nobody_has_applied() {
    let removes = |pod: &Value, inject: bool| {
        let patch = without_managed_fields(json_patch::Patch(Vec::new()), &read(pod), inject);
        let mut patched = pod.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        let mut expected = pod.clone();
        let metadata = expected["metadata"].as_object_mut().unwrap();
        let had = metadata.remove("managedFields").is_some();
        assert!(patch.0.is_empty() || patched == expected, "{patch:?}");
        had && !patch.0.is_empty()
    };
    let opted_in = full_pod(json!({keys::CONTROL_LABEL: "true"}));
    let plain = full_pod(json!({"app": "web"}));
    assert!(removes(&opted_in, false) && removes(&plain, true) && !removes(&plain, false));
    assert!(!removes(&full_pod(json!({keys::CONTROL_LABEL: "false"})), true), "it stays out");
    let mut applied = opted_in.clone();
    applied["metadata"]["managedFields"][0]["operation"] = json!("Apply");
    assert!(!removes(&applied, false));
    let mut none = opted_in;
    none["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert!(!removes(&none, false), "the API server refuses to remove what is not there");
}
