//! The deletion cost of a busy pod: Podward raises it, and it is as it was when the pod is not busy or opts out.

use podward_core::busy::HIGHEST_COST;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{
    BUSY_UNTIL, CONTROL_LABEL, DELETION_REQUEST, IDLE_DELETION_COST, POD_DELETION_COST,
};
use podward_core::{NoRules, Pod, PodHooks, on_update, plan};
use serde_json::{Value, json};

use super::{at, pod};

#[test]
fn the_webhook_keeps_the_cost_in_step_within_the_application_s_write() {
    let patched = |owner: &str, annotations: Value| {
        let mut document = json!({"metadata": {
            "name": "web-0", "labels": {CONTROL_LABEL: "true"}, "annotations": annotations,
            "ownerReferences": [{"kind": owner, "name": "web", "uid": "1", "controller": true}],
        }});
        let pod: Pod = serde_json::from_value(document.clone()).unwrap();
        json_patch::patch(&mut document, &on_update(Some(&pod), &pod, at(0))).unwrap();
        document["metadata"]["annotations"].take()
    };
    let busy = json!({BUSY_UNTIL: at(30).to_rfc3339(), POD_DELETION_COST: "5"});
    let marked = patched("ReplicaSet", busy.clone());
    assert_eq!(marked[POD_DELETION_COST], HIGHEST_COST);
    assert_eq!(patched("ReplicaSet", marked.clone()), marked, "once");
    let mut idle = marked;
    idle.as_object_mut().unwrap().remove(BUSY_UNTIL);
    assert_eq!(patched("ReplicaSet", idle), json!({POD_DELETION_COST: "5"}));
    assert_eq!(patched("StatefulSet", busy.clone()), busy, "which doesn't choose by cost");
    let past = json!({BUSY_UNTIL: at(-1).to_rfc3339()});
    assert_eq!(patched("ReplicaSet", past.clone()), past);
}

#[test]
fn a_pod_that_opts_out_has_its_own_cost_again() {
    let idle = json!({"cost": "5", "since": 7}).to_string();
    let lowest = i32::MIN.to_string();
    let request = |cost_before: &str| {
        let request = DeletionRequest::new(DeletionKind::Delete, "jane", at(0));
        DeletionRequest { cost_before: Some(cost_before.to_owned()), ..request }.to_text()
    };
    let busy = at(30).to_rfc3339();
    for (what, stored, cost) in [
        (
            "busy",
            json!({BUSY_UNTIL: busy, POD_DELETION_COST: HIGHEST_COST, IDLE_DELETION_COST: idle}),
            json!("5"),
        ),
        ("to be deleted", json!({POD_DELETION_COST: lowest, DELETION_REQUEST: request("5")}), json!("5")),
        (
            "to be deleted, without a cost",
            json!({POD_DELETION_COST: lowest, DELETION_REQUEST: request("")}),
            Value::Null,
        ),
        (
            "busy when its deletion was requested",
            json!({POD_DELETION_COST: lowest, IDLE_DELETION_COST: idle, DELETION_REQUEST: request(HIGHEST_COST)}),
            json!("5"),
        ),
        ("set meanwhile", json!({POD_DELETION_COST: "3", IDLE_DELETION_COST: idle}), json!("3")),
        ("its own", json!({POD_DELETION_COST: lowest}), json!(lowest)),
        ("none", json!({}), Value::Null),
    ] {
        // The mutating webhook does it within the write that removes the label.
        let old = pod(stored.clone());
        let mut document = json!({"metadata": {"name": "web-0", "annotations": stored}});
        let new: Pod = serde_json::from_value(document.clone()).unwrap();
        json_patch::patch(&mut document, &on_update(Some(&old), &new, at(0))).unwrap();
        let left = &document["metadata"]["annotations"];
        assert_eq!(left.get(POD_DELETION_COST).unwrap_or(&Value::Null), &cost, "{what}");
        assert_eq!(left.get(IDLE_DELETION_COST), None, "{what}");
        let written: Pod = serde_json::from_value(document).unwrap();
        assert!(on_update(Some(&new), &written, at(0)).0.is_empty(), "{what}");

        // The controller does it if the webhook was down.
        let planned = plan(&new.view(), &PodHooks::none(), &NoRules, at(0)).annotations;
        let found = planned.iter().find(|(key, _)| *key == POD_DELETION_COST);
        let stored = new.metadata.annotations.deletion_cost.as_deref();
        let after = found.map_or(stored, |(_, text)| text.as_deref());
        assert_eq!(after, cost.as_str(), "{what}");
        let has_idle = new.metadata.annotations.idle_deletion_cost.is_some();
        assert_eq!(planned.contains(&(IDLE_DELETION_COST, None)), has_idle, "{what}");
        assert!(plan(&written.view(), &PodHooks::none(), &NoRules, at(0)).is_empty(), "{what}");
    }
}
