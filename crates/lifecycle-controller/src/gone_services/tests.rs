use std::convert::Infallible;
use std::sync::{Arc, Weak};

use hyper::{Request, StatusCode};
use kube::client::Body;
use podward_core::keys::{AVAILABLE_CONDITIONS, CONTROL_LABEL};
use podward_support::api_answers::{failure, json_answer};
use serde_json::json;

use super::*;
use crate::service_lookup::fixture::ServiceApi;

const FINALIZER: &str = "prot.podopslifecycle.kusionstack.io/web";

/// What the API server returns.
#[derive(Clone, Copy, Default)]
struct Stored {
    service: bool,
    is_namespace_terminating: bool,
    fails: bool,
    /// Whether the existence of the Service changes after it was looked up.
    changes_after_lookup: bool,
}

fn checks(stored: &Arc<Mutex<Stored>>) -> Arc<GoneServiceChecks> {
    Arc::new_cyclic(|checks| GoneServiceChecks::new(client(stored.clone(), checks.clone())))
}

fn client(shared: Arc<Mutex<Stored>>, checks: Weak<GoneServiceChecks>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let stored = *shared.lock();
        if stored.changes_after_lookup && request.uri().path().ends_with("/services/web") {
            *shared.lock() = Stored { service: !stored.service, changes_after_lookup: false, ..stored };
            checks.upgrade().unwrap().renew("shop", "web");
        }
        let answer = match request.uri().path() {
            _ if stored.fails => failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            "/api/v1/namespaces/shop/services/web" if stored.service => {
                json_answer(&json!({"metadata": {"name": "web", "namespace": "shop"}}))
            }
            "/api/v1/namespaces/shop/services/web" => failure(StatusCode::NOT_FOUND, "NotFound"),
            "/api/v1/namespaces" => {
                assert!(request.uri().query().unwrap().contains("metadata.name%3Dshop"));
                let mut namespace = json!({"name": "shop"});
                if stored.is_namespace_terminating {
                    namespace["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                json_answer(&json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {"resourceVersion": "1"}, "items": [{"metadata": namespace}],
                }))
            }
            other => panic!("{other} was not expected"),
        };
        async { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "shop")
}

/// A pod that the Service `web` holds, terminating or in service.
fn pod(is_terminating: bool) -> CachedPod {
    pod_of("Service/shop/web", is_terminating)
}

/// A pod that `consumer` holds.
fn pod_of(consumer: &str, is_terminating: bool) -> CachedPod {
    let expected = json!({"expectedFinalizers": {consumer: FINALIZER}}).to_string();
    let mut pod = json!({"metadata": {
        "name": "web-0", "namespace": "shop", "uid": "u", "finalizers": [FINALIZER, "example.com/other"],
        "labels": {CONTROL_LABEL: "true"}, "annotations": {AVAILABLE_CONDITIONS: expected},
    }});
    if is_terminating {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    serde_json::from_value(pod).unwrap()
}

/// The consumers that are gone, whether each is released, and the seconds until the next check.
async fn check(checks: &GoneServiceChecks, pod: &CachedPod, at: Instant) -> (Vec<bool>, Option<u64>) {
    let found = checks.check(pod, at).await.unwrap();
    for service in &found.services {
        assert_eq!((service.consumer.as_str(), service.finalizer.as_str()), ("Service/shop/web", FINALIZER));
    }
    let released = found.services.iter().map(|service| service.is_released).collect();
    (released, found.next_check.map(|next| next.as_secs()))
}

#[tokio::test]
async fn in_a_terminating_namespace_the_finalizer_of_a_missing_service_is_removed_after_a_time() {
    let stored = Arc::new(Mutex::new(Stored { is_namespace_terminating: true, ..Stored::default() }));
    let (checks, pod, start) = (checks(&stored), pod(true), Instant::now());
    let after = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(check(&checks, &pod, start).await, (vec![], Some(5)));
    assert_eq!(check(&checks, &pod, after(5)).await, (vec![false], Some(20)));
    assert_eq!(check(&checks, &pod, after(15)).await, (vec![false], Some(10)));
    assert_eq!(check(&checks, &pod, after(25)).await, (vec![true], Some(0)));
}

#[tokio::test]
async fn in_other_namespaces_the_finalizer_is_named_and_stays() {
    let stored = Arc::new(Mutex::new(Stored::default()));
    let (checks, pod, start) = (checks(&stored), pod(true), Instant::now());
    let after = |seconds| start + Duration::from_secs(seconds);
    check(&checks, &pod, start).await;
    assert_eq!(check(&checks, &pod, after(5)).await, (vec![false], Some(60)));
    assert_eq!(check(&checks, &pod, after(65)).await, (vec![false], Some(60)));
    let found = checks.check(&pod, after(66)).await.unwrap();
    let sentence = found.services[0].sentence(&pod.key());
    assert!(
        sentence.contains("Service/shop/web does not exist") && sentence.contains(FINALIZER),
        "{sentence}"
    );
    assert_eq!(checks.renew("shop", "other"), []);
    // Somebody creates the Service again. Its traffic controller releases the pod.
    stored.lock().service = true;
    assert_eq!(checks.renew("shop", "web"), [pod.key()]);
    assert_eq!(check(&checks, &pod, Instant::now()).await, (vec![], None));
    stored.lock().service = false;
    stored.lock().is_namespace_terminating = true;
    assert_eq!(checks.renew("shop", "web"), [pod.key()]);
    let renewed = Instant::now();
    assert_eq!(check(&checks, &pod, renewed).await, (vec![false], Some(20)));
}

#[tokio::test]
async fn a_failure_is_not_a_missing_service() {
    let failing = Stored { fails: true, is_namespace_terminating: true, ..Stored::default() };
    let stored = Arc::new(Mutex::new(failing));
    let (checks, pod, start) = (checks(&stored), pod(true), Instant::now());
    checks.check(&pod, start).await.unwrap();
    checks.check(&pod, start + Duration::from_secs(60)).await.unwrap_err();
    stored.lock().fails = false;
    assert_eq!(check(&checks, &pod, start + Duration::from_secs(61)).await, (vec![false], Some(20)));
}

#[tokio::test]
async fn a_pod_in_service_is_not_checked() {
    let stored = Arc::new(Mutex::new(Stored::default()));
    let (checks, pod, start) = (checks(&stored), pod(false), Instant::now());
    assert_eq!(check(&checks, &pod, start).await, (vec![], None));
    assert_eq!(check(&checks, &pod, start + Duration::from_secs(60)).await, (vec![], None));
    assert_eq!(checks.renew("shop", "web"), []);
}

#[tokio::test]
async fn a_service_that_changes_during_the_check_is_looked_up_again() {
    let found = Stored { service: true, is_namespace_terminating: true, ..Stored::default() };
    let stored = Arc::new(Mutex::new(Stored { changes_after_lookup: true, ..found }));
    let (checks, pod, start) = (checks(&stored), pod(true), Instant::now());
    let after = |seconds| start + Duration::from_secs(seconds);
    check(&checks, &pod, start).await;
    assert_eq!(check(&checks, &pod, after(5)).await, (vec![], Some(0)), "it is deleted after the lookup");
    assert_eq!(check(&checks, &pod, after(6)).await, (vec![false], Some(20)));

    stored.lock().changes_after_lookup = true;
    assert_eq!(
        check(&checks, &pod, after(26)).await,
        (vec![true], Some(0)),
        "it is created after the lookup"
    );
    assert_eq!(check(&checks, &pod, after(26)).await, (vec![], None));
}

#[tokio::test]
async fn a_service_that_cannot_exist_is_missing() {
    let stored = Arc::new(Mutex::new(Stored::default()));
    let (checks, pod, start) = (checks(&stored), pod_of("Service/shop/my web", true), Instant::now());
    checks.check(&pod, start).await.unwrap();
    let found = checks.check(&pod, start + CHECK_DELAY).await.unwrap();
    assert_eq!(found.services.len(), 1, "{found:?}");
    assert_eq!(found.services[0].consumer, "Service/shop/my web");
}

#[tokio::test]
async fn many_services_are_looked_up_by_a_few_requests() {
    let server = ServiceApi::new([("api", json!({})), ("web", json!({}))]);
    let checks = GoneServiceChecks::new(server.client());
    let names = (0..1000).map(|number| format!("gone-{number}")).chain(["api".to_owned(), "web".to_owned()]);
    let held: Vec<(String, String)> =
        names.map(|name| (format!("Service/shop/{name}"), format!("{FINALIZER}-{name}"))).collect();
    let finalizers: Vec<&String> = held.iter().map(|(_, finalizer)| finalizer).collect();
    let expected = json!({"expectedFinalizers": held.iter().cloned().collect::<HashMap<_, _>>()}).to_string();
    let pod: CachedPod = serde_json::from_value(json!({"metadata": {
        "name": "web-0", "namespace": "shop", "uid": "u", "finalizers": finalizers,
        "labels": {CONTROL_LABEL: "true"}, "annotations": {AVAILABLE_CONDITIONS: expected},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }}))
    .unwrap();
    let start = Instant::now();
    checks.check(&pod, start).await.unwrap();
    let found = checks.check(&pod, start + CHECK_DELAY).await.unwrap();
    assert_eq!(found.services.len(), 1000);
    assert!(found.services.iter().all(|gone| gone.consumer.starts_with("Service/shop/gone-")));
    assert_eq!(server.requests(), 3, "one page for each Service, and the namespace");
}
