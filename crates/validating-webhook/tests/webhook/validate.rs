//! Reviews of writes to pods.

use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use podward_core::ReviewPolicy;
use podward_core::keys::{AVAILABLE_CONDITIONS, CONTROL_LABEL, Stage};
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService};
use proptest::prelude::*;
use serde_json::{Value, json};
use validating_webhook::PodWebhook;

const UID: &str = "u-1";

async fn ask(strict: bool, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let policy = ReviewPolicy { strict, trusted: vec!["controller".to_owned()] };
    let service = AdmissionService::new(
        PodWebhook::new(policy),
        AdmissionMetrics::default(),
        AdmissionLimits::default(),
    );
    let request = Request::post("/validate").header("content-type", "application/json");
    let response = service.handle(request.body(Full::from(body)).unwrap()).await;
    (response.status(), response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn response_to(strict: bool, review: &Value) -> Value {
    let (status, body) = ask(strict, review.to_string().into_bytes()).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&answer["response"]["uid"], answer["response"].get("patch")), (&json!(UID), None));
    answer["response"].clone()
}

fn pod(labels: &[(&str, &str)]) -> Value {
    let mut pod =
        json!({"metadata": {"name": "web-0", "namespace": "shop", "labels": {CONTROL_LABEL: "true"}}});
    for (key, value) in labels {
        pod["metadata"]["labels"][*key] = json!(value);
    }
    pod
}

fn update(user: &str, old: Value, new: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": "UPDATE", "name": "web-0", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": user}, "object": new, "oldObject": old,
        },
    })
}

#[tokio::test]
async fn a_valid_write_is_allowed_without_a_warning() {
    let (operating, kind, check) =
        (Stage::Operating.key("a"), Stage::OperationType.key("a"), Stage::PreCheck.key("a"));
    let begun = pod(&[(&operating, "1"), (&kind, "update"), (&check, "1")]);
    assert_eq!(
        response_to(true, &update("operator", pod(&[]), begun)).await,
        json!({"uid": UID, "allowed": true})
    );
}

#[tokio::test]
async fn a_protocol_violation_is_denied_with_the_upstream_message() {
    let operated = pod(&[(&Stage::Operated.key("a"), "1")]);
    let response = response_to(false, &update("controller", pod(&[]), operated.clone())).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
    assert_eq!(response["status"]["reason"], "Forbidden");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("failed to validate PodOpsLifecycleWebhook, "), "{message}");
    // The next write is not denied for it.
    let mut next = operated.clone();
    next["metadata"]["labels"]["app"] = json!("x");
    assert_eq!(response_to(false, &update("controller", operated, next)).await["allowed"], true);
}

#[tokio::test]
async fn an_invalid_annotation_is_denied_when_it_is_written() {
    let mut bad = pod(&[]);
    bad["metadata"]["annotations"] = json!({AVAILABLE_CONDITIONS: "{"});
    let response = response_to(false, &update("operator", pod(&[]), bad)).await;
    assert_eq!(response["allowed"], false);
}

#[tokio::test]
async fn untrusted_writers_are_warned_or_denied() {
    let forged =
        update("operator", pod(&[]), pod(&[("podopslifecycle.kusionstack.io/service-available", "1")]));
    let response = response_to(false, &forged).await;
    assert!(
        response["allowed"] == true && response["warnings"].to_string().contains("operator"),
        "{response}"
    );
    assert_eq!(response_to(true, &forged).await["status"]["code"], 403);
    let mut trusted = forged;
    trusted["request"]["userInfo"]["username"] = json!("controller");
    assert_eq!(response_to(true, &trusted).await, json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn the_status_is_not_reviewed() {
    let mut review = update("operator", pod(&[]), pod(&[]));
    review["request"]["subResource"] = json!("status");
    assert_eq!(response_to(false, &review).await["status"]["code"], 400);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn corrupted_reviews_are_answered(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
    ) {
        let mut body = update("operator", pod(&[]), pod(&[(&Stage::Operating.key("a"), "1")])).to_string().into_bytes();
        let length = body.len();
        for (at, mask) in &flips {
            body[at.index(length)] ^= mask;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (status, answer) = runtime.block_on(ask(true, body));
        match status {
            StatusCode::OK => {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                prop_assert!(answer["response"]["allowed"].is_boolean());
            }
            status => prop_assert!(status.is_client_error() && !answer.is_empty() && !flips.is_empty()),
        }
    }
}
