//! Reviews of DiscoveryBindings and ClusterRegistries by users who may not read the Secrets in them.

use http_body_util::{BodyExt, Full};
use hyper::Request;
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService, Webhooks};
use podward_runtime::telemetry::traces::Spans;
use serde_json::{Value, json};
use validating_webhook::DiscoveryWebhook;

use crate::fake_cluster::{FakeCluster, WITHOUT_RIGHTS};
use crate::fixture::UID;

/// Reviews an update of a DiscoveryBinding by `user`.
async fn update(user: &str, old: &Value, new: &Value) -> Value {
    review(user, ("/bindings", "discoverybindings"), old, new).await
}

async fn review(user: &str, (path, resource): (&str, &str), old: &Value, new: &Value) -> Value {
    let webhook = DiscoveryWebhook::new(FakeCluster::new().client(), "podward-system");
    let service = AdmissionService::of(
        Webhooks::default().and(webhook),
        AdmissionMetrics::default(),
        AdmissionLimits::default(),
        Spans::none(),
    );
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": "UPDATE", "name": "web", "namespace": "shop",
            "resource": {"group": "podward.io", "version": "v1alpha1", "resource": resource},
            "userInfo": {"username": user}, "object": new, "oldObject": old,
        },
    });
    let request = Request::post(path).header("content-type", "application/json");
    let response = service.handle(request.body(Full::from(review.to_string())).unwrap()).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    answer["response"].clone()
}

fn binding(connection: &Value) -> Value {
    json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
        "metadata": {"name": "web", "namespace": "shop", "finalizers": ["example.com/hold"]},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}}, "service": {"name": "web"}, "port": 80,
            "registry": {"connection": connection},
        },
    })
}

fn terminating(mut binding: Value) -> Value {
    binding["metadata"]["deletionTimestamp"] = json!("2026-11-28T10:00:00Z");
    binding["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    binding
}

/// Returns a binding without a Secret, and the same with one that is sent to another address.
fn redirected() -> (Value, Value) {
    let own = json!({"kind": "Consul", "addresses": ["http://consul:8500"]});
    let elsewhere =
        json!({"kind": "Consul", "addresses": ["http://mallory:8500"], "credentialsSecret": "consul"});
    (binding(&own), binding(&elsewhere))
}

#[tokio::test]
async fn a_terminating_binding_gets_no_secret_that_its_writer_may_not_read() {
    let (before, after) = redirected();
    let (before, after) = (terminating(before), terminating(after));
    let denied = update(WITHOUT_RIGHTS, &before, &after).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    assert!(denied["status"]["message"].as_str().unwrap().contains("may not get Secret shop/consul"));
    assert_eq!(update("jane", &before, &after).await["allowed"], true);
}

#[tokio::test]
async fn a_binding_that_is_invalid_already_gets_no_secret_that_its_writer_may_not_read() {
    let (mut before, mut after) = redirected();
    for binding in [&mut before, &mut after] {
        binding["spec"]["weight"] = json!("many");
    }
    let denied = update(WITHOUT_RIGHTS, &before, &after).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    let allowed = update("jane", &before, &after).await;
    assert_eq!(allowed["allowed"], true);
    assert!(allowed["warnings"][0].as_str().unwrap().contains("spec.weight"), "{allowed}");
}

#[tokio::test]
async fn the_finalizers_of_an_invalid_binding_can_be_removed() {
    let (_, mut before) = redirected();
    before["spec"]["weight"] = json!("many");
    let before = terminating(before);
    let mut after = before.clone();
    after["metadata"]["finalizers"] = json!([]);
    assert_eq!(update(WITHOUT_RIGHTS, &before, &after).await["allowed"], true);
}

#[tokio::test]
async fn another_registry_for_a_binding_that_may_have_instances_is_warned_of() {
    let consul = |address: &str| json!({"kind": "Consul", "addresses": [address]});
    let of = |registry: Value, finalizer: &str| {
        let mut binding = binding(&Value::Null);
        binding["spec"]["registry"] = registry;
        binding["metadata"]["finalizers"] = json!([finalizer]);
        binding
    };
    let ours = "podward.io/discovery-binding";
    let inline = |address: &str| json!({"connection": consul(address)});
    let named = |name: &str| json!({"clusterRegistry": name});
    for (before, after, words) in [
        (named("east"), named("west"), "ClusterRegistry east and ClusterRegistry west"),
        (inline("http://consul:8500"), named("east"), "Consul (node podward) and ClusterRegistry east"),
        (
            json!({"connection": {"kind": "Etcd", "addresses": ["etcd:2379"]}}),
            json!({"connection": {"kind": "Etcd", "addresses": ["etcd:2379"], "etcd": {"prefix": "shop"}}}),
            "Etcd and Etcd (prefix shop)",
        ),
    ] {
        let allowed = update("jane", &of(before, ours), &of(after, ours)).await;
        assert_eq!(allowed["allowed"], true, "{allowed}");
        let warning = allowed["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with("spec.registry: ") && warning.contains(words), "{warning}");
    }
    for (before, after, finalizer) in [
        (inline("http://consul:8500"), inline("http://other:8500"), ours),
        (named("typo"), named("east"), "example.com/hold"),
    ] {
        let allowed = update("jane", &of(before, finalizer), &of(after, finalizer)).await;
        assert_eq!((&allowed["allowed"], allowed.get("warnings")), (&json!(true), None), "{allowed}");
    }
}

#[tokio::test]
async fn another_place_for_a_cluster_registry_is_warned_of() {
    let registry = |connection: Value| {
        json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": "east"},
            "spec": {"connection": connection},
        })
    };
    let consul = |address: &str| registry(json!({"kind": "Consul", "addresses": [address]}));
    let route = ("/registries", "clusterregistries");
    let eureka = registry(json!({"kind": "Eureka", "addresses": ["http://eureka:8761/eureka"]}));
    let allowed = review("jane", route, &consul("http://consul:8500"), &eureka).await;
    assert_eq!(allowed["allowed"], true, "{allowed}");
    let warning = allowed["warnings"][0].as_str().unwrap();
    let words = "spec.connection: unless Consul (node podward) and Eureka are the same registry";
    assert!(warning.starts_with(words), "{warning}");
    let allowed = review("jane", route, &consul("http://consul:8500"), &consul("http://other:8500")).await;
    assert_eq!((&allowed["allowed"], allowed.get("warnings")), (&json!(true), None), "{allowed}");
}
