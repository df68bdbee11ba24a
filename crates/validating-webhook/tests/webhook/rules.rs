//! Reviews of PodTransitionRules.

use http_body_util::{BodyExt, Full};
use hyper::Request;
use podward_core::ReviewPolicy;
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService, Webhooks};
use podward_runtime::telemetry::traces::Spans;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use validating_webhook::{PodWebhook, RuleWebhook};

use crate::fixture::UID;

async fn ask(path: &str, review: &Value) -> Value {
    let webhooks =
        Webhooks::default().and(RuleWebhook::default()).and(PodWebhook::new(ReviewPolicy::default()));
    let service = AdmissionService::of(
        webhooks,
        AdmissionMetrics::default(),
        AdmissionLimits::default(),
        Spans::none(),
    );
    let request = Request::post(path).header("content-type", "application/json");
    let response = service.handle(request.body(Full::from(review.to_string())).unwrap()).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["uid"], UID, "{answer}");
    answer["response"].clone()
}

fn review(old: Option<&Value>, new: &Value) -> Value {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": operation, "name": "a", "namespace": "shop",
            "resource": {"group": "apps.kusionstack.io", "version": "v1alpha1", "resource": "podtransitionrules"},
            "userInfo": {"username": "me"}, "object": new, "oldObject": old,
        },
    })
}

fn object(rules: Value) -> Value {
    json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": rules},
    })
}

fn webhook(url: &str) -> Value {
    json!({"name": "outside", "webhook": {"clientConfig": {"url": url}}})
}

#[tokio::test]
async fn a_valid_rule_is_allowed_without_a_warning() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = format!("http://{}/check", listener.local_addr().unwrap());
    let rules = json!([{"name": "half", "availablePolicy": {"maxUnavailableValue": "50%"}}, webhook(&there)]);
    assert_eq!(ask("/rules", &review(None, &object(rules))).await, json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn an_invalid_rule_is_denied_with_the_field() {
    let rules =
        json!([{"name": "half", "availablePolicy": {"maxUnavailableValue": "half"}}, webhook("ftp://a")]);
    let response = ask("/rules", &review(None, &object(rules))).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
    let message = response["status"]["message"].as_str().unwrap();
    for field in
        ["spec.rules[0].availablePolicy.maxUnavailableValue: ", "spec.rules[1].webhook.clientConfig.url: "]
    {
        assert!(message.contains(field), "{message}");
    }
    let response = ask("/rules", &review(None, &json!({"spec": {"rules": [{"webhook": 1}]}}))).await;
    assert_eq!(response["status"]["code"], 400);
}

#[tokio::test]
async fn an_earlier_error_is_a_warning() {
    let bad = object(json!([{"name": "half", "availablePolicy": {"maxUnavailableValue": "half"}}]));
    let mut labelled = bad.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let response = ask("/rules", &review(Some(&bad), &labelled)).await;
    assert!(
        response["allowed"] == true && response["warnings"].to_string().contains("maxUnavailableValue"),
        "{response}"
    );
    // A new error is denied.
    let mut worse = bad.clone();
    worse["spec"].as_object_mut().unwrap().remove("selector");
    assert!(
        ask("/rules", &review(Some(&bad), &worse)).await["status"]["message"]
            .as_str()
            .unwrap()
            .starts_with("spec.selector")
    );
    // An old object that cannot be parsed does not prevent the write that corrects it. A terminating object is not
    // checked.
    let unread = json!({"spec": {"rules": [{"webhook": 1}]}});
    assert_eq!(
        ask(
            "/rules",
            &review(Some(&unread), &object(json!([{"name": "l", "labelCheck": {"requires": {}}}])))
        )
        .await["allowed"],
        true
    );
    let mut going = worse;
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
    assert_eq!(ask("/rules", &review(Some(&bad), &going)).await, json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn a_host_that_is_down_is_a_warning() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/check", listener.local_addr().unwrap());
    drop(listener);
    let created = object(json!([webhook(&closed)]));
    let response = ask("/rules", &review(None, &created)).await;
    assert!(
        response["allowed"] == true && response["warnings"][0].as_str().unwrap().contains("cannot reach"),
        "{response}"
    );
    // A host is tried only when it is added.
    assert_eq!(ask("/rules", &review(Some(&created), &created)).await, json!({"uid": UID, "allowed": true}));
    let mut disabled = created;
    disabled["spec"]["rules"][0]["disabled"] = json!(true);
    assert_eq!(ask("/rules", &review(None, &disabled)).await, json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn an_address_that_drops_packets_does_not_exceed_the_timeout() {
    // TEST-NET-1 (RFC 5737) is not routed. The connection may also be refused immediately.
    let response =
        ask("/rules?timeout=1s", &review(None, &object(json!([webhook("https://192.0.2.1/x")])))).await;
    assert!(
        response["allowed"] == true && response["warnings"][0].as_str().unwrap().contains("192.0.2.1:443"),
        "{response}"
    );
}

#[tokio::test]
async fn each_path_accepts_its_own_kind_of_object() {
    let response = ask("/validate", &review(None, &object(json!([])))).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert_eq!(response["status"]["code"], 400);
    assert!(
        message
            .contains("/validate reviews pods of v1, not podtransitionrules of apps.kusionstack.io/v1alpha1"),
        "{message}"
    );
}
