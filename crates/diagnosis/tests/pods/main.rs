//! First lines for pods, from objects of the Kubernetes API. Their causes are also caused on clusters, in `tests/e2e`.
#![allow(clippy::unwrap_used)] // helpers of tests

mod containers;
mod nodes;
mod traffic;

use std::sync::Arc;

use jiff::Timestamp;
use podward_diagnosis::pod::diagnose;
use podward_diagnosis::{Case, PodEvents, Snapshot};
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().unwrap()
}

/// Reads a snapshot from JSON: `pod` without its name, `events` as reason and message.
fn snapshot(mut value: Value) -> Snapshot {
    let metadata = &mut value["pod"]["metadata"];
    metadata["namespace"] = json!("shop");
    metadata["name"] = json!("web");
    metadata["uid"] = json!("u1");
    let events = value["events"].as_array().cloned().unwrap_or_default().into_iter().map(|event| {
        json!({
            "metadata": {}, "reason": event[0], "message": event[1],
            "involvedObject": {"fieldPath": "spec.containers{server}"}, "lastTimestamp": "2026-01-01T09:59:00Z",
        })
    });
    let events = serde_json::from_value(Value::Array(events.collect())).unwrap();
    let list = |name: &str| if value[name].is_null() { json!([]) } else { value[name].clone() };
    Snapshot {
        now: now(),
        pod: serde_json::from_value(value["pod"].clone()).unwrap(),
        events: PodEvents::new(events),
        node: serde_json::from_value(value["node"].clone()).unwrap(),
        lease: serde_json::from_value(value["lease"].clone()).unwrap(),
        budgets: Arc::new(serde_json::from_value(list("budgets")).unwrap()),
        services: Arc::new(serde_json::from_value(list("services")).unwrap()),
        slices: Arc::new(serde_json::from_value(list("slices")).unwrap()),
        ..Snapshot::default()
    }
}

fn first(value: Value) -> (Case, String, Vec<String>) {
    let causes = diagnose(&snapshot(value), None);
    (causes[0].case, causes[0].line(now()), causes[0].evidence.clone())
}

fn ready_node() -> Value {
    json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A pod on node n1 whose container has this status.
fn with_container(state: Value) -> Value {
    let mut status = json!({
        "name": "server", "image": "example.com/web:1", "imageID": "", "ready": false, "restartCount": 0, "started": false,
    });
    status.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
    json!({
        "metadata": {},
        "spec": {"nodeName": "n1", "containers": [{"name": "server", "resources": {"limits": {"memory": "64Mi"}}}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    })
}

fn ready(labels: &Value) -> Value {
    json!({
        "metadata": {"labels": labels}, "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}
