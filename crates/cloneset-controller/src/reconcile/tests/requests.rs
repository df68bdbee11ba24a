//! Deletions that Podward holds for a set.

use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::DELETION_REQUEST;
use serde_json::Value;

use super::*;
use crate::test_api::merge;

const USER: &str = "system:serviceaccount:podward-system:cloneset-controller";

/// The watch delivers a pod with a change.
fn deliver(context: &Context, name: &str, version: u32, change: Value) {
    let pod = context.pods.of(SET).into_iter().find(|pod| pod.name_any() == name).unwrap();
    let mut pod = json!({"metadata": pod.metadata, "spec": {}, "status": {}});
    merge(&mut pod, change);
    pod["metadata"]["resourceVersion"] = json!(version.to_string());
    context.pods.deliver(serde_json::from_value(pod).unwrap());
}

fn requested() -> Value {
    let request = DeletionRequest::new(DeletionKind::Delete, USER, UnixNanos(7)).to_text();
    json!({"metadata": {"annotations": {DELETION_REQUEST: request}}})
}

async fn scale(context: &Arc<Context>, replicas: u32) {
    reconcile(Arc::new(set(json!({"replicas": replicas}))), Arc::clone(context)).await.unwrap();
}

/// Returns a set with two pods, one too many, and their names: that whose deletion Podward holds, and the other one.
async fn held(server: &ApiServer) -> (Arc<Context>, String, String) {
    let context = server.context(Progress::default());
    context.user.set(USER.to_owned()).unwrap();
    scale(&context, 2).await;
    server.refuse_with(429, Method::DELETE, "pods", "NAME waits");
    scale(&context, 1).await;
    assert_eq!(server.deleted("pods"), 1);
    let requests = server.requests();
    let is_held =
        |name: &String| requests.contains(&format!("(DELETE, \"/api/v1/namespaces/test/pods/{name}"));
    let names = context.pods.of(SET).into_iter().map(|pod| pod.name_any());
    let (held, other): (Vec<String>, Vec<String>) = names.partition(is_held);
    (context, held.concat(), other.concat())
}

/// The watch has not delivered the request yet, and the other pod would be chosen now.
#[tokio::test]
async fn a_scale_in_requests_no_other_pod_while_one_is_held() {
    let server = ApiServer::default();
    let (context, held, other) = held(&server).await;
    let cheap = json!({"controller.kubernetes.io/pod-deletion-cost": "-5"});
    deliver(&context, &other, 1000, json!({"metadata": {"annotations": cheap}}));
    scale(&context, 1).await;
    assert_eq!(server.deleted("pods"), 1, "Podward has recorded the request");
    deliver(&context, &held, 1001, requested());
    scale(&context, 1).await;
    assert_eq!(server.deleted("pods"), 1);
    assert_eq!(server.patched_pods(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_request_that_was_not_recorded_is_repeated() {
    let server = ApiServer::default();
    let (context, held, _) = held(&server).await;
    deliver(&context, &held, 1000, json!({}));
    scale(&context, 1).await;
    assert_eq!(server.deleted("pods"), 2);
}

/// The request may be that of a person, too, who was told that the pod will be deleted.
#[tokio::test]
async fn a_set_that_is_scaled_out_again_keeps_its_request() {
    let server = ApiServer::default();
    let (context, held, _) = held(&server).await;
    deliver(&context, &held, 1000, requested());
    scale(&context, 2).await;
    assert_eq!(server.patched_pods(), Vec::<Value>::new());
    assert_eq!(server.created("pods").len(), 2, "the pod is replaced when it is gone");
}

/// The API server answers with 429 too when it has too much to do.
#[tokio::test]
async fn a_pod_is_available_until_its_request_is_seen() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    scale(&context, 2).await;
    for (version, pod) in (1000..).zip(context.pods.of(SET)) {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let change = json!({"metadata": {"labels": {keys::STATE_LABEL: "Normal"}}, "status": ready});
        deliver(&context, &pod.name_any(), version, change);
    }
    server.refuse_with(429, Method::DELETE, "pods", "NAME waits");
    for _ in 0..2 {
        scale(&context, 1).await;
        let status = context.latest_status(&set(json!({})));
        assert_eq!((status.available_replicas, server.deleted("pods")), (2, 1));
    }
}
