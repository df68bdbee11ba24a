//! Pods with thousands of labels. Whoever may write a pod can write them, and admission and the controller read them. With
//! a step for each pair of labels, these tests would take minutes.

use std::collections::BTreeMap;

use podward_core::history::with_history;
use podward_core::keys::{CONTROL_LABEL, SERVICE_READY_GATE, Stage, permission_key};
use podward_core::{
    NoRules, Operations, Pod, PodHooks, ReviewPolicy, Writer, advance, explain, on_update, plan, review,
    review_raw,
};
use serde_json::{Value, json};

use crate::words::NOW;

const MANY: usize = 3_000;

/// Operations that have lost their type, and permissions of which others claim all but one.
fn lost_types() -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(CONTROL_LABEL.to_owned(), "true".to_owned())]);
    for number in 0..MANY {
        labels.insert(Stage::Operating.key(&format!("x{number}")), "1".to_owned());
        labels.insert(Stage::PreChecked.key(&format!("x{number}")), "1".to_owned());
        labels.insert(permission_key(&format!("t{number}")), "1".to_owned());
        if number > 0 {
            labels.insert(Stage::OperationType.key(&format!("z{number}")), format!("t{number}"));
        }
    }
    labels
}

fn pod(labels: &BTreeMap<String, String>, gate: &str) -> Value {
    json!({
        "metadata": {"name": "web-0", "namespace": "shop", "labels": labels, "annotations": {}},
        "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"conditions": [{"type": SERVICE_READY_GATE, "status": gate}]},
    })
}

fn read(document: &Value) -> Pod {
    serde_json::from_value(document.clone()).unwrap()
}

/// A write with both webhooks in it.
fn write(document: &mut Value, change: impl FnOnce(&mut Value)) {
    let old = read(document);
    change(document);
    let new = read(document);
    let (writer, policy) = (Writer { username: "jane", groups: &[] }, ReviewPolicy::default());
    let _ = review_raw(Some(&old), &new, &writer, &policy);
    let patch = with_history(on_update(Some(&old), &new, NOW), Some(&old), &new, "jane", NOW);
    json_patch::patch(document, &patch).unwrap();
    let _ = review(Some(&old), &read(document), &writer, &policy);
}

#[test]
fn operations_that_have_lost_their_type() {
    let labels = lost_types();
    let before = pod(&labels, "True");
    let mut stored = before.clone();
    write(&mut stored, |_| {});
    let prepared = read(&stored);
    let after = Operations::parse(prepared.metadata.labels.as_ref().unwrap());
    assert!(after.get("x7").unwrap().has(Stage::Preparing));
    assert_eq!(after.type_of("x7").as_deref(), Some("t0"), "the permission that nobody else claims");
    assert!(after.permits("t0") && !after.permits("t1"));
    let alone = advance(None, &read(&before).view(), NOW);
    assert_eq!((alone.set.len(), alone.remove.len()), (MANY, MANY - 1));

    stored["status"]["conditions"][0]["status"] = json!("False");
    write(&mut stored, |_| {});
    assert_eq!(stored["metadata"]["labels"][Stage::Operate.key("x7")], NOW.to_string());
    let planned = plan(&read(&stored).view(), &PodHooks::none(), &NoRules, NOW);
    assert!(planned.is_empty(), "{:?}", planned.gate);

    write(&mut stored, |pod| {
        let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
        (0..MANY).for_each(|number| drop(labels.remove(&Stage::Operating.key(&format!("x{number}")))));
    });
    let labels = &stored["metadata"]["labels"];
    for id in ["x7", "x2999"] {
        assert_eq!(labels[Stage::DoneOperationType.key(id)], "t0", "{id}");
    }
    let undo = |pod: &mut Value| {
        for number in 0..MANY {
            pod["metadata"]["labels"][Stage::UndoOperationType.key(&format!("x{number}"))] = json!("t0");
        }
    };
    write(&mut stored, undo);
    assert!(!stored["metadata"]["labels"].to_string().contains("undo"));
}

#[test]
fn operations_that_wait_for_others() {
    let mut labels = BTreeMap::from([(CONTROL_LABEL.to_owned(), "true".to_owned())]);
    for number in 0..MANY {
        for id in [format!("done{number}"), format!("works{number}")] {
            labels.insert(Stage::OperationType.key(&id), "update".to_owned());
            labels.insert(Stage::PreChecked.key(&id), "1".to_owned());
            labels.insert(Stage::Operate.key(&id), "1".to_owned());
        }
        labels.insert(Stage::Operating.key(&format!("works{number}")), "1".to_owned());
    }
    labels.insert(permission_key("update"), "1".to_owned());
    let message = explain(&read(&pod(&labels, "False")).view(), &NoRules, &[]).message;
    let sentence = message.split(". ").next().unwrap();
    assert!(
        sentence.starts_with("operation done0 (update) is done and waits for operations works0, works1, ")
    );
    assert!(sentence.ends_with(" and 2984 others to be done"), "{sentence}");
    assert!(message.len() < 1_000 * MANY, "{}", message.len());
}
