//! The deletes and evictions that are allowed, and those that are held.

use hyper::StatusCode;
use podward_core::deletion::hold::BUDGET_REFUSAL;
use podward_core::keys::{BREAK_GLASS, DELETION_REQUEST, Stage};
use podward_proto::v1;
use podward_runtime::admission::AdmissionLimits;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tonic::Status;

use crate::fake_cluster::node;
use crate::fake_controller::{Behavior, FakeController};
use crate::fixture::{Fixture, POD, delete_review, evict_review, pod, take_out, until};

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
    take_out(&mut pod);
    for stage in [Stage::Operating, Stage::Operate] {
        pod["metadata"]["labels"][stage.key("pod-delete")] = json!("1");
    }
    pod
}

#[tokio::test]
async fn a_pod_that_serves_is_held_and_the_request_is_recorded() {
    let fixture = Fixture::new().await;
    let response = fixture.delete(&pod()).await;
    assert!(message(&response).starts_with(UNDERWAY), "{response}");
    assert!(message(&response).contains("requested by jane"), "{response}");
    let requests = fixture.controller.requests();
    let [
        v1::RequestDeletionRequest {
            pod: Some(of),
            deletion_request: Some(request),
            requester: Some(requester),
        },
    ] = requests.as_slice()
    else {
        panic!("{requests:?}")
    };
    assert_eq!((of.namespace.as_str(), of.name.as_str(), of.uid.as_str()), ("shop", "web-0", "7"));
    assert_eq!((request.kind(), requester.user.as_str()), (v1::DeletionKind::Delete, "jane"));
    // The rights of the whole identity are checked.
    assert_eq!((requester.groups.as_slice(), requester.uid.as_str()), (&["admins".to_owned()][..], "jane-1"));
    assert_eq!(requester.extra["scopes"].values, ["all"]);
    assert_eq!(request.grace_period_seconds, Some(5));
    // The node and the namespace are cached.
    assert!(fixture.cluster.reads().is_empty(), "{:?}", fixture.cluster.reads());
    assert!(
        fixture.metrics().contains(r#"podward_held_total{kind="deletion",outcome="recorded"} 1"#),
        "{}",
        fixture.metrics()
    );
}

#[tokio::test]
async fn a_repeated_request_is_answered_from_the_pod() {
    let fixture = Fixture::new().await;
    let mut held = pod();
    let request = |kind: &str, by: &str, by_workload: bool| {
        json!({"kind": kind, "requestedBy": by, "requestedAt": 1, "byWorkload": by_workload}).to_string()
    };
    held["metadata"]["annotations"][DELETION_REQUEST] = json!(request("Delete", "joe", false));
    assert!(message(&fixture.delete(&held).await).contains("requested by joe"));
    held["metadata"]["annotations"][DELETION_REQUEST] = json!(request("Delete", "jane", true));
    message(&fixture.delete(&held).await);
    assert!(fixture.controller.requests().is_empty());
    // These requests would change: an eviction is weaker, and a workload withdraws its request when its replica count
    // changes.
    let others = [request("Evict", "joe", false), request("Delete", "workload", true), "{".to_owned()];
    for (count, other) in others.into_iter().enumerate() {
        held["metadata"]["annotations"][DELETION_REQUEST] = json!(other);
        message(&fixture.delete(&held).await);
        assert_eq!(fixture.controller.requests().len(), count + 1);
    }
}

#[tokio::test]
async fn a_controller_that_repeats_many_deletes_waits_for_an_answer() {
    let fixture = Fixture::new().await;
    let mut held = pod();
    held["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]);
    let request = |by_workload: bool| {
        json!({"kind": "Delete", "requestedBy": "jane", "requestedAt": 1, "byWorkload": by_workload})
            .to_string()
    };
    let delayed = || fixture.metrics().contains("podward_repeated_deletes_delayed_total 1");
    for (by_workload, expected) in [(false, false), (true, true)] {
        held["metadata"]["annotations"][DELETION_REQUEST] = json!(request(by_workload));
        for _ in 0..100 {
            if !delayed() {
                assert!(message(&fixture.delete(&held).await).contains("requested by jane"));
            }
        }
        assert_eq!(delayed(), expected, "{}", fixture.metrics());
    }
    assert!(fixture.controller.requests().is_empty());
}

#[tokio::test]
async fn pods_that_need_no_draining_are_allowed() {
    let fixture = Fixture::new().await;
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
        assert_eq!(fixture.delete(&pod).await, json!({"uid": "u-1", "allowed": true}), "{reason}");
        let line = format!("podward_allowed_total{{kind=\"deletion\",reason=\"{reason}\"}} 1");
        assert!(fixture.metrics().contains(&line), "{reason}: {}", fixture.metrics());
    }
    assert!(fixture.cluster.reads().is_empty() && fixture.controller.requests().is_empty());
    makes_the_first_event(&fixture, pod()).await;
}

#[tokio::test]
async fn a_dry_run_has_no_effect() {
    let fixture = Fixture::new().await;
    let mut broken = pod();
    broken["metadata"]["annotations"][BREAK_GLASS] = json!("because");
    fixture.cluster.put(POD, pod());
    for pod in [pod(), broken.clone()] {
        let mut review = delete_review(&pod);
        review["request"]["dryRun"] = json!(true);
        assert_eq!(fixture.ask("/delete", &review).await["allowed"], true);
    }
    // An eviction may request a dry run in the query or in the body.
    let mut query = evict_review("policy/v1", json!({}));
    query["request"]["dryRun"] = json!(true);
    for review in [query, evict_review("policy/v1", json!({"dryRun": ["All"]}))] {
        assert_eq!(fixture.ask("/evict", &review).await["allowed"], true);
    }
    assert!(fixture.controller.requests().is_empty() && fixture.cluster.reads().is_empty());
    makes_the_first_event(&fixture, broken).await;
}

/// Checks that there was no event before: that of a later request is the first.
async fn makes_the_first_event(fixture: &Fixture, mut pod: Value) {
    pod["metadata"]["annotations"][BREAK_GLASS] = json!("because");
    let mut review = delete_review(&pod);
    review["request"]["userInfo"]["username"] = json!("later");
    assert_eq!(fixture.ask("/delete", &review).await["allowed"], true);
    let event = fixture.cluster.event().await;
    assert!(event["note"].as_str().unwrap().contains("by later"), "{event}");
}

#[tokio::test]
async fn break_glass_is_reported() {
    let fixture = Fixture::new().await;
    let mut broken = pod();
    broken["metadata"]["annotations"][BREAK_GLASS] = json!("INC-7: disk is full");
    let response = fixture.delete(&broken).await;
    assert_eq!(response["allowed"], true);
    assert!(response["warnings"][0].as_str().unwrap().contains("INC-7"), "{response}");
    let event = fixture.cluster.event().await;
    assert_eq!(
        (&event["reason"], &event["type"], &event["regarding"]["uid"]),
        (&json!("BreakGlass"), &json!("Warning"), &json!("7"))
    );
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("by jane") && note.contains("INC-7: disk is full"), "{note}");
}

#[tokio::test]
async fn pods_of_lost_nodes_are_allowed() {
    let fixture = Fixture::new().await;
    let allowed = async || fixture.delete(&pod()).await["allowed"] == true;
    // A node that is missing in the cache is read from the API server. Only "not found" counts.
    let mut elsewhere = pod();
    elsewhere["spec"]["nodeName"] = json!("n2");
    assert_eq!(fixture.delete(&elsewhere).await["allowed"], true);
    assert_eq!(fixture.cluster.reads(), ["/api/v1/nodes/n2"]);
    // A node that became NotReady just now.
    let seen = || fixture.metrics().contains("podward_watch_objects{watch=\"nodes\"} 2");
    let just = jiff::Timestamp::now().to_string();
    fixture.cluster.put("/api/v1/nodes/n1", node("Unknown", &just));
    fixture.cluster.put("/api/v1/nodes/seen", node("True", &just));
    until(seen).await;
    assert!(!allowed().await);
    fixture.cluster.put("/api/v1/nodes/n1", node("Unknown", "2020-01-01T00:00:00Z"));
    fixture.cluster.delete("/api/v1/nodes/seen");
    until(|| !seen()).await;
    assert!(allowed().await);
    assert!(
        fixture.metrics().contains(r#"reason="node_unreachable"} 1"#)
            && fixture.metrics().contains(r#"reason="node_gone"} 1"#)
    );
}

#[tokio::test]
async fn a_pod_whose_state_cannot_be_read_is_held() {
    let fixture = Fixture::new().await;
    fixture.cluster.fail(StatusCode::FORBIDDEN);
    let mut elsewhere = pod();
    elsewhere["spec"]["nodeName"] = json!("n2");
    message(&fixture.delete(&elsewhere).await);
    let response = fixture.evict().await;
    assert!(message(&response).contains("could not read pod shop/web-0"), "{response}");
    assert!(fixture.metrics().contains(r#"podward_held_total{kind="eviction",outcome="unseen"} 1"#));
}

#[tokio::test]
async fn pods_of_a_terminating_namespace_are_allowed() {
    let fixture = Fixture::new().await;
    let mut review = delete_review(&pod());
    review["request"]["userInfo"]["username"] =
        json!("system:serviceaccount:kube-system:namespace-controller");
    message(&fixture.ask("/delete", &review).await);
    assert_eq!(fixture.cluster.reads(), ["/api/v1/namespaces/shop"], "the cache may be out of date");
    fixture
        .cluster
        .put("/api/v1/namespaces/shop", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    until(|| fixture.metrics().contains("podward_watch_objects{watch=\"namespaces\"} 1")).await;
    assert_eq!(fixture.delete(&pod()).await["allowed"], true);
}

#[tokio::test]
async fn evictions_of_both_versions_are_held() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.evict().await, json!({"uid": "u-1", "allowed": true}), "there is no such pod");
    fixture.cluster.put(POD, pod());
    for version in ["policy/v1", "policy/v1beta1"] {
        let response = fixture.ask("/evict", &evict_review(version, json!({"gracePeriodSeconds": 9}))).await;
        let message = message(&response);
        assert!(
            message.starts_with(UNDERWAY) && message.contains("Eviction triggered evacuation"),
            "{message}"
        );
    }
    let requests = fixture.controller.requests();
    let (request, requester) = (requests[1].deletion_request.as_ref(), requests[1].requester.as_ref());
    let (request, requester) = (request.unwrap(), requester.unwrap());
    assert_eq!(
        (request.kind(), requester.user.as_str(), request.grace_period_seconds),
        (v1::DeletionKind::Evict, "drainer", Some(9))
    );
    fixture.cluster.put(POD, granted());
    assert_eq!(fixture.evict().await["allowed"], true);
}

#[tokio::test]
async fn names_that_change_the_path_are_not_used() {
    let fixture = Fixture::new().await;
    for name in ["", "../secrets/x", "a?watch=true", "%2e%2e"] {
        let mut review = evict_review("policy/v1", json!({}));
        review["request"]["name"] = json!(name);
        assert_eq!(fixture.ask("/evict", &review).await["allowed"], true);
    }
    assert!(fixture.cluster.reads().is_empty());
}

#[tokio::test]
async fn a_refusal_is_passed_to_the_caller() {
    let fixture = Fixture::new().await;
    fixture.cluster.put(POD, pod());
    fixture.controller.set_behavior(Behavior::Fails(Status::resource_exhausted(BUDGET_REFUSAL)));
    assert_eq!(message(&fixture.evict().await), BUDGET_REFUSAL);
    assert!(fixture.metrics().contains(r#"podward_held_total{kind="eviction",outcome="refused"} 1"#));
}

#[tokio::test]
async fn a_forged_review_of_a_user_without_rights_is_denied() {
    let fixture = Fixture::new().await;
    fixture.cluster.put(POD, pod());
    let why = "user jane may not delete pods in namespace shop";
    fixture.controller.set_behavior(Behavior::Fails(Status::permission_denied(why)));
    for response in [fixture.delete(&pod()).await, fixture.evict().await] {
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
        let text = response["status"]["message"].as_str().unwrap();
        assert!(text.contains(why) && text.contains("shop/web-0 was not recorded"), "{text}");
    }
    assert!(fixture.metrics().contains(r#"podward_held_total{kind="deletion",outcome="forbidden"} 1"#));
}

#[tokio::test]
async fn a_forged_old_object_without_uid_is_rejected() {
    let fixture = Fixture::new().await;
    for uid in [Value::Null, json!("")] {
        let mut forged = pod();
        forged["metadata"]["uid"] = uid;
        let response = fixture.delete(&forged).await;
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(400)));
    }
    assert!(fixture.controller.requests().is_empty(), "nothing may be recorded");
}

#[tokio::test]
async fn a_pod_is_held_when_the_controller_cannot_record_the_request() {
    let fixture = Fixture::new().await;
    for (status, words) in [
        (Status::unavailable("going away"), "could not reach the lifecycle-controller"),
        (Status::deadline_exceeded("no answer in time"), "it may still be recorded"),
        (Status::invalid_argument("no"), "--trusted-requester"),
        (Status::unauthenticated("no"), "--token-file"),
        (Status::not_found("who?"), "does not know the pod"),
        (Status::internal("oops"), "returned Internal: oops"),
        (Status::resource_exhausted(""), "returned ResourceExhausted"),
    ] {
        fixture.controller.set_behavior(Behavior::Fails(status));
        let response = fixture.delete(&pod()).await;
        let message = message(&response);
        assert!(message.contains(words) && message.contains("try again"), "{message}");
    }
    assert!(
        fixture.metrics().contains(r#"podward_request_deletion_failures_total{code="Internal"} 1"#),
        "{}",
        fixture.metrics()
    );
}

#[tokio::test]
async fn a_missing_token_is_reported() {
    let controller = FakeController::start().await;
    let recorder = controller.recorder();
    controller.remove_token_file();
    let fixture = Fixture::of(controller, recorder, Duration::ZERO, AdmissionLimits::default()).await;
    assert!(message(&fixture.delete(&pod()).await).contains("--token-file"));
    assert!(fixture.controller.requests().is_empty());
}

#[tokio::test]
async fn a_pod_is_held_when_the_controller_is_down() {
    let controller = FakeController::start().await;
    let recorder = controller.unreachable_recorder().await;
    let fixture = Fixture::of(controller, recorder, Duration::ZERO, AdmissionLimits::default()).await;
    assert!(message(&fixture.delete(&pod()).await).contains("could not reach the lifecycle-controller"));
}

#[tokio::test]
async fn another_replica_records_when_the_first_is_down() {
    let controller = FakeController::start().await;
    let recorder = controller.recorder_of_replicas().await;
    let fixture = Fixture::of(controller, recorder, Duration::ZERO, AdmissionLimits::default()).await;
    assert!(message(&fixture.delete(&pod()).await).contains("is deleted automatically"));
    assert_eq!(fixture.controller.requests().len(), 1);
}

#[tokio::test]
async fn a_controller_that_hangs_does_not_exceed_the_timeout_of_the_api_server() {
    let fixture = Fixture::new().await;
    fixture.controller.set_behavior(Behavior::Hangs);
    let start = Instant::now();
    let response = fixture.ask("/delete?timeout=1s", &delete_review(&pod())).await;
    message(&response);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(fixture.controller.requests().len(), 1);
}

#[tokio::test]
async fn a_request_above_the_limit_is_answered_immediately() {
    let fixture =
        Fixture::with(Duration::ZERO, AdmissionLimits { deferred: 1, ..AdmissionLimits::default() }).await;
    fixture.controller.set_behavior(Behavior::Hangs);
    let (first, review) = (pod(), delete_review(&pod()));
    let slow = fixture.delete(&first);
    let fast = async {
        until(|| !fixture.controller.requests().is_empty()).await;
        fixture.ask("/delete", &review).await
    };
    tokio::select! {
        slow = slow => panic!("{slow}"),
        fast = fast => assert!(message(&fast).contains("too many requests under way"), "{fast}"),
    }
    // A request that needs no wait is answered.
    assert_eq!(fixture.delete(&granted()).await["allowed"], true);
}
