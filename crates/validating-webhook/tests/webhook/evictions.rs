//! The pod that an eviction means: preconditions, and repeated evictions.

use podward_core::cloneset::keys::{DELETE_HOLD, SPECIFIED_DELETE};
use podward_support::metrics_text;
use serde_json::{Value, json};
use tonic::Status;

use crate::fake_cluster::node;
use crate::fake_controller::Behavior;
use crate::fixture::{Fixture, POD, evict_review, pod};

async fn evict_with(fixture: &Fixture, preconditions: Value) -> Value {
    let options = json!({ "preconditions": preconditions });
    fixture.ask("/evict", &evict_review("policy/v1", options)).await
}

/// Returns the pod with the same name that replaces [`pod`], on the node n2.
fn successor() -> Value {
    let mut pod = pod();
    pod["metadata"]["uid"] = json!("8");
    pod["spec"]["nodeName"] = json!("n2");
    pod
}

#[tokio::test]
async fn evictions_of_another_pod_or_version_are_refused_before_they_take_a_place_in_a_budget() {
    let fixture = Fixture::new().await;
    fixture.cluster.put(POD, pod());
    // The stored pod has the UID 7 and the resource version 2.
    for other in
        [json!({"uid": "6"}), json!({"resourceVersion": "1"}), json!({"uid": "7", "resourceVersion": "1"})]
    {
        let status = &evict_with(&fixture, other.clone()).await["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(409), &json!("Conflict")), "{other}");
    }
    assert!(fixture.controller.requests().is_empty(), "nothing may be recorded");
    // The pod could have this version when the API server looks at it.
    for later in ["3", "x"] {
        let response = evict_with(&fixture, json!({"resourceVersion": later})).await;
        let status = &response["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(409), &json!("Conflict")), "{response}");
    }
    assert!(fixture.controller.requests().is_empty(), "nothing may be recorded");
    // The API server ignores empty preconditions.
    for same in
        [json!({"uid": "7", "resourceVersion": "2"}), json!({"uid": "", "resourceVersion": ""}), json!(null)]
    {
        assert_eq!(evict_with(&fixture, same.clone()).await["status"]["code"], 429, "{same}");
    }
}

#[tokio::test]
async fn a_repeated_eviction_does_not_evict_the_successor() {
    let fixture = Fixture::new().await;
    fixture.cluster.put("/api/v1/nodes/n2", node("True", "2020-01-01T00:00:00Z"));
    fixture.cluster.put(POD, pod());
    assert_eq!(fixture.evict().await["status"]["code"], 429);
    fixture.cluster.put(POD, successor());
    let recorded = fixture.controller.requests().len();

    let repeated = fixture.evict().await;
    let status = &repeated["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(404), &json!("NotFound")), "{repeated}");
    assert!(status["message"].as_str().unwrap().contains("pod shop/web-0 with UID 7"), "{repeated}");
    assert_eq!(fixture.controller.requests().len(), recorded, "nothing may be recorded");
    let metrics = metrics_text(&fixture.setup.registry);
    assert!(metrics.contains(r#"podward_held_total{kind="eviction",outcome="replaced"} 1"#), "{metrics}");

    // Another user means the pod that there is, and so does who names its UID.
    let mut other = evict_review("policy/v1", json!({}));
    other["request"]["userInfo"]["username"] = json!("jane");
    assert_eq!(fixture.ask("/evict", &other).await["status"]["code"], 429);
    assert_eq!(evict_with(&fixture, json!({"uid": "8"})).await["status"]["code"], 429);
}

#[tokio::test]
async fn a_drain_evicts_a_successor_on_a_cordoned_node() {
    let fixture = Fixture::new().await;
    fixture.cluster.put(POD, pod());
    assert_eq!(fixture.evict().await["status"]["code"], 429);
    fixture.cluster.put(POD, successor());
    let mut cordoned = node("True", "2020-01-01T00:00:00Z");
    cordoned["spec"] = json!({"unschedulable": true});
    fixture.cluster.put("/api/v1/nodes/n2", cordoned);
    assert_eq!(fixture.evict().await["status"]["code"], 429);
    assert_eq!(fixture.controller.requests().last().unwrap().pod.as_ref().unwrap().uid, "8");
}

/// Each eviction renews the room in the disruption budget. The request itself is the label.
#[tokio::test]
async fn a_repeated_eviction_of_a_pod_left_to_its_clone_set_is_known() {
    let fixture = Fixture::new().await;
    let mut left = pod();
    left["metadata"]["labels"] = json!({"in-use": "true", SPECIFIED_DELETE: "by-others"});
    left["metadata"]["annotations"] = json!({DELETE_HOLD: r#"{"set": "web", "labels": {"in-use": "true"}}"#});
    left["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "1", "controller": true},
    ]);
    fixture.cluster.put(POD, left);
    let down = Behavior::Fails(Status::unavailable("going away"));
    for (count, behavior) in [Behavior::LeavesToCloneSet, down].into_iter().enumerate() {
        fixture.controller.set_behavior(behavior);
        let response = fixture.evict().await;
        let status = &response["status"];
        assert_eq!((&response["allowed"], &status["code"]), (&json!(false), &json!(429)), "{response}");
        let text = status["message"].as_str().unwrap();
        assert!(text.contains("is deleted by CloneSet web"), "{text}");
        assert!(fixture.controller.requests().len() > count, "the room is renewed");
        let known = format!(r#"podward_held_total{{kind="eviction",outcome="known"}} {}"#, count + 1);
        assert!(fixture.metrics().contains(&known), "{}", fixture.metrics());
    }
}
