//! Reviews of PodTransitionRules.

use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use podward_core::ReviewPolicy;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses};
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService, Webhooks};
use podward_runtime::telemetry::traces::Spans;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use validating_webhook::{PodWebhook, RuleWebhook};

use crate::fixture::UID;

/// Returns a policy that allows 127.0.0.2. The API server is at 10.96.0.1.
fn addresses() -> AddressPolicy {
    let allowed = ["127.0.0.2/32".parse().unwrap()];
    AddressPolicy::new(&allowed, ApiServerAddresses::of_client("", Some("10.96.0.1")))
}

async fn ask(path: &str, review: &Value) -> Value {
    let webhooks =
        Webhooks::default().and(RuleWebhook::new(addresses())).and(PodWebhook::new(ReviewPolicy::default()));
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
    let rules = json!([
        {"name": "half", "availablePolicy": {"maxUnavailableValue": "50%"}},
        webhook("https://checks.shop.svc/check"),
    ]);
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
async fn a_rule_cannot_be_used_to_find_open_ports() {
    let open = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let closed = TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap();
    for url in [
        format!("http://{}/check", open.local_addr().unwrap()),
        format!("http://{closed}/check"),
        "http://no-such-name.invalid/check".to_owned(),
    ] {
        let response = ask("/rules", &review(None, &object(json!([webhook(&url)])))).await;
        assert_eq!(response, json!({"uid": UID, "allowed": true}), "{url}");
    }
    assert!(open.accept().now_or_never().is_none(), "the webhook connected to the host of a rule");
}

#[tokio::test]
async fn an_address_that_is_not_called_is_a_warning() {
    for (url, class) in [
        ("http://127.0.0.1:1/check", "an address of this host"),
        ("https://LOCALHOST/check", "an address of this host"),
        ("http://169.254.169.254/latest/meta-data", "a link-local address"),
        ("https://[::ffff:10.96.0.1]/api", "an address of the API server"),
    ] {
        let created = object(json!([webhook(url)]));
        let response = ask("/rules", &review(None, &created)).await;
        assert_eq!(response["allowed"], true);
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.contains(class) && warning.contains("global.allowedAddresses"), "{warning}");
        let mut disabled = created;
        disabled["spec"]["rules"][0]["disabled"] = json!(true);
        assert_eq!(ask("/rules", &review(None, &disabled)).await, json!({"uid": UID, "allowed": true}));
    }
    // The same address in several URLs is one warning.
    let mut polled = webhook("http://127.0.0.1/check");
    polled["webhook"]["clientConfig"]["poll"] = json!({"url": "http://127.0.0.1/poll"});
    let response = ask("/rules", &review(None, &object(json!([polled])))).await;
    assert_eq!(response["warnings"].as_array().map(Vec::len), Some(1), "{response}");
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
