//! What is let through, and what is held.

use hyper::StatusCode;
use podward_core::hold::BUDGET_REFUSAL;
use podward_core::keys::{BREAK_GLASS, DELETION_WISH, Stage};
use podward_proto::v1;
use podward_runtime::admission::Limits;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tonic::Status;

use crate::cluster::node;
use crate::controller::{FakeController, Mood};
use crate::scene::{POD, Scene, delete_review, evict_review, pod, until};

const UNDERWAY: &str = "pod deletion process is underway and being managed by PodOpsLifecycle";

fn message(response: &Value) -> &str {
    assert_eq!(response["allowed"], false, "{response}");
    assert_eq!(
        (&response["status"]["code"], &response["status"]["reason"]),
        (&json!(429), &json!("TooManyRequests"))
    );
    response["status"]["message"].as_str().unwrap()
}

fn granted() -> Value {
    let mut pod = pod();
    for stage in [Stage::Operating, Stage::Operate] {
        pod["metadata"]["labels"][stage.key("pod-delete")] = json!("1");
    }
    pod
}

#[tokio::test]
async fn a_pod_that_serves_is_held_and_the_wish_recorded() {
    let scene = Scene::new().await;
    let response = scene.delete(&pod()).await;
    assert!(message(&response).starts_with(UNDERWAY), "{response}");
    assert!(message(&response).contains("asked for by jane"), "{response}");
    let asked = scene.controller.asked();
    let [v1::RequestDeletionRequest { pod: Some(of), wish: Some(wish) }] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!((of.namespace.as_str(), of.name.as_str(), of.uid.as_str()), ("shop", "web-0", "7"));
    assert_eq!((wish.kind(), wish.requested_by.as_str()), (v1::DeletionKind::Delete, "jane"));
    assert_eq!(wish.grace_period_seconds, Some(5));
    // Neither the node nor the namespace had to be asked for.
    assert!(scene.cluster.asked().is_empty(), "{:?}", scene.cluster.asked());
    assert!(
        scene.metrics().contains(r#"podward_held_total{kind="deletion",outcome="recorded"} 1"#),
        "{}",
        scene.metrics()
    );
}

#[tokio::test]
async fn a_caller_that_comes_again_is_answered_without_asking_anybody() {
    let scene = Scene::new().await;
    let mut held = pod();
    let wish = |kind: &str, by: &str, by_workload: bool| {
        json!({"kind": kind, "requestedBy": by, "requestedAt": 1, "byWorkload": by_workload}).to_string()
    };
    held["metadata"]["annotations"][DELETION_WISH] = json!(wish("Delete", "joe", false));
    assert!(message(&scene.delete(&held).await).contains("asked for by joe"));
    held["metadata"]["annotations"][DELETION_WISH] = json!(wish("Delete", "jane", true));
    message(&scene.delete(&held).await);
    assert!(scene.controller.asked().is_empty());
    // These would not stay as they are: a weaker one, and one that a workload takes back when its numbers say so.
    let others = [wish("Evict", "joe", false), wish("Delete", "workload", true), "{".to_owned()];
    for (asked, other) in others.into_iter().enumerate() {
        held["metadata"]["annotations"][DELETION_WISH] = json!(other);
        message(&scene.delete(&held).await);
        assert_eq!(scene.controller.asked().len(), asked + 1);
    }
}

#[tokio::test]
async fn who_may_go_goes_at_once() {
    let scene = Scene::new().await;
    let with = |path: &str, value: Value| {
        let mut pod = pod();
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let mut terminating = pod();
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for (reason, pod) in [
        ("not_opted_in", with("/metadata/labels", json!({}))),
        ("finished", with("/status/phase", json!("Succeeded"))),
        ("never_scheduled", with("/spec/nodeName", json!(""))),
        ("terminating", terminating),
        ("granted", granted()),
    ] {
        assert_eq!(scene.delete(&pod).await, json!({"uid": "u-1", "allowed": true}), "{reason}");
        let line = format!("podward_let_through_total{{kind=\"deletion\",reason=\"{reason}\"}} 1");
        assert!(scene.metrics().contains(&line), "{reason}: {}", scene.metrics());
    }
    assert!(
        scene.cluster.asked().is_empty()
            && scene.controller.asked().is_empty()
            && scene.cluster.events() == 0
    );
}

#[tokio::test]
async fn a_dry_run_leaves_nothing_behind() {
    let scene = Scene::new().await;
    let mut broken = pod();
    broken["metadata"]["annotations"][BREAK_GLASS] = json!("because");
    scene.cluster.put(POD, pod());
    for pod in [pod(), broken] {
        let mut review = delete_review(&pod);
        review["request"]["dryRun"] = json!(true);
        assert_eq!(scene.ask("/delete", &review).await["allowed"], true);
    }
    // An eviction's dry run is in the query, or in the body.
    let mut query = evict_review("policy/v1", json!({}));
    query["request"]["dryRun"] = json!(true);
    for review in [query, evict_review("policy/v1", json!({"dryRun": ["All"]}))] {
        assert_eq!(scene.ask("/evict", &review).await["allowed"], true);
    }
    assert!(
        scene.controller.asked().is_empty()
            && scene.cluster.asked().is_empty()
            && scene.cluster.events() == 0
    );
}

#[tokio::test]
async fn breaking_the_glass_is_on_record() {
    let scene = Scene::new().await;
    let mut broken = pod();
    broken["metadata"]["annotations"][BREAK_GLASS] = json!("INC-7: disk is full");
    let response = scene.delete(&broken).await;
    assert_eq!(response["allowed"], true);
    assert!(response["warnings"][0].as_str().unwrap().contains("INC-7"), "{response}");
    let event = scene.cluster.event().await;
    assert_eq!(
        (&event["reason"], &event["type"], &event["regarding"]["uid"]),
        (&json!("BreakGlass"), &json!("Warning"), &json!("7"))
    );
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("by jane") && note.contains("INC-7: disk is full"), "{note}");
}

#[tokio::test]
async fn nodes_that_are_away_give_their_pods_up() {
    let scene = Scene::new().await;
    let allowed = async || scene.delete(&pod()).await["allowed"] == true;
    // Not known to the watch: the API server is asked, and only its "not found" counts.
    let mut elsewhere = pod();
    elsewhere["spec"]["nodeName"] = json!("n2");
    assert_eq!(scene.delete(&elsewhere).await["allowed"], true);
    assert_eq!(scene.cluster.asked(), ["/api/v1/nodes/n2"]);
    // A node that just stopped being Ready.
    let seen = || scene.metrics().contains("podward_watch_objects{watch=\"nodes\"} 2");
    let just = jiff::Timestamp::now().to_string();
    scene.cluster.put("/api/v1/nodes/n1", node("Unknown", &just));
    scene.cluster.put("/api/v1/nodes/seen", node("True", &just));
    until(seen).await;
    assert!(!allowed().await);
    scene.cluster.put("/api/v1/nodes/n1", node("Unknown", "2020-01-01T00:00:00Z"));
    scene.cluster.delete("/api/v1/nodes/seen");
    until(|| !seen()).await;
    assert!(allowed().await);
    assert!(
        scene.metrics().contains(r#"reason="node_unreachable"} 1"#)
            && scene.metrics().contains(r#"reason="node_gone"} 1"#)
    );
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_held() {
    let scene = Scene::new().await;
    scene.cluster.fail(StatusCode::FORBIDDEN);
    let mut elsewhere = pod();
    elsewhere["spec"]["nodeName"] = json!("n2");
    message(&scene.delete(&elsewhere).await);
    let response = scene.evict().await;
    assert!(message(&response).contains("could not look up pod shop/web-0"), "{response}");
    assert!(scene.metrics().contains(r#"podward_held_total{kind="eviction",outcome="unseen"} 1"#));
}

#[tokio::test]
async fn pods_of_a_namespace_that_goes_go() {
    let scene = Scene::new().await;
    let mut review = delete_review(&pod());
    review["request"]["userInfo"]["username"] =
        json!("system:serviceaccount:kube-system:namespace-controller");
    message(&scene.ask("/delete", &review).await);
    assert_eq!(scene.cluster.asked(), ["/api/v1/namespaces/shop"], "it may know better than the watch");
    scene
        .cluster
        .put("/api/v1/namespaces/shop", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    until(|| scene.metrics().contains("podward_watch_objects{watch=\"namespaces\"} 1")).await;
    assert_eq!(scene.delete(&pod()).await["allowed"], true);
}

#[tokio::test]
async fn evictions_are_looked_up_in_both_versions() {
    let scene = Scene::new().await;
    assert_eq!(scene.evict().await, json!({"uid": "u-1", "allowed": true}), "there is no such pod");
    scene.cluster.put(POD, pod());
    for version in ["policy/v1", "policy/v1beta1"] {
        let response = scene.ask("/evict", &evict_review(version, json!({"gracePeriodSeconds": 9}))).await;
        let message = message(&response);
        assert!(
            message.starts_with(UNDERWAY) && message.contains("Eviction triggered evacuation"),
            "{message}"
        );
    }
    let asked = scene.controller.asked();
    let wish = asked[1].wish.as_ref().unwrap();
    assert_eq!(
        (wish.kind(), wish.requested_by.as_str(), wish.grace_period_seconds),
        (v1::DeletionKind::Evict, "drainer", Some(9))
    );
    scene.cluster.put(POD, granted());
    assert_eq!(scene.evict().await["allowed"], true);
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_not_followed() {
    let scene = Scene::new().await;
    for name in ["", "../secrets/x", "a?watch=true", "%2e%2e"] {
        let mut review = evict_review("policy/v1", json!({}));
        review["request"]["name"] = json!(name);
        assert_eq!(scene.ask("/evict", &review).await["allowed"], true);
    }
    assert!(scene.cluster.asked().is_empty());
}

#[tokio::test]
async fn a_refusal_is_passed_on_as_it_is() {
    let scene = Scene::new().await;
    scene.cluster.put(POD, pod());
    scene.controller.be(Mood::Fails(Status::resource_exhausted(BUDGET_REFUSAL)));
    assert_eq!(message(&scene.evict().await), BUDGET_REFUSAL);
    assert!(scene.metrics().contains(r#"podward_held_total{kind="eviction",outcome="refused"} 1"#));
}

#[tokio::test]
async fn a_controller_that_cannot_record_changes_nothing_about_holding() {
    let scene = Scene::new().await;
    for (status, words) in [
        (Status::unavailable("going away"), "no lifecycle-controller could be reached"),
        (Status::permission_denied("no"), "--trusted-requester"),
        (Status::not_found("who?"), "doesn't know the pod"),
        (Status::internal("oops"), "answers Internal: oops"),
        (Status::resource_exhausted(""), "answers ResourceExhausted"),
    ] {
        scene.controller.be(Mood::Fails(status));
        let response = scene.delete(&pod()).await;
        let message = message(&response);
        assert!(message.contains(words) && message.contains("try again"), "{message}");
    }
    assert!(
        scene.metrics().contains(r#"podward_request_deletion_failures_total{code="Internal"} 1"#),
        "{}",
        scene.metrics()
    );
}

#[tokio::test]
async fn a_token_that_is_missing_is_told_of() {
    let controller = FakeController::start().await;
    let recorder = controller.recorder();
    controller.forget_the_token();
    let scene = Scene::of(controller, recorder, Duration::ZERO, Limits::default()).await;
    assert!(message(&scene.delete(&pod()).await).contains("--token-file"));
    assert!(scene.controller.asked().is_empty());
}

#[tokio::test]
async fn without_a_controller_it_holds_all_the_same() {
    let controller = FakeController::start().await;
    let recorder = controller.recorder_of_nobody().await;
    let scene = Scene::of(controller, recorder, Duration::ZERO, Limits::default()).await;
    assert!(message(&scene.delete(&pod()).await).contains("no lifecycle-controller could be reached"));
}

#[tokio::test]
async fn another_replica_records_when_the_first_is_away() {
    let controller = FakeController::start().await;
    let recorder = controller.recorder_of_replicas().await;
    let scene = Scene::of(controller, recorder, Duration::ZERO, Limits::default()).await;
    assert!(message(&scene.delete(&pod()).await).contains("is deleted by itself"));
    assert_eq!(scene.controller.asked().len(), 1);
}

#[tokio::test]
async fn a_controller_that_sleeps_is_not_waited_for_beyond_the_servers_patience() {
    let scene = Scene::new().await;
    scene.controller.be(Mood::Sleeps);
    let start = Instant::now();
    let response = scene.ask("/delete?timeout=1s", &delete_review(&pod())).await;
    message(&response);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(scene.controller.asked().len(), 1);
}

#[tokio::test]
async fn one_too_many_is_told_so_at_once() {
    let scene = Scene::with(Duration::ZERO, Limits { waiting: 1, ..Limits::default() }).await;
    scene.controller.be(Mood::Sleeps);
    let (first, review) = (pod(), delete_review(&pod()));
    let slow = scene.delete(&first);
    let fast = async {
        until(|| !scene.controller.asked().is_empty()).await;
        scene.ask("/delete", &review).await
    };
    tokio::select! {
        slow = slow => panic!("{slow}"),
        fast = fast => assert!(message(&fast).contains("too many requests under way"), "{fast}"),
    }
    // What needs nobody is answered all the same.
    assert_eq!(scene.delete(&granted()).await["allowed"], true);
}
