//! Deletions that Podward holds for a set.

use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{DELETE_OPERATION, DELETION_REQUEST, Stage};
use serde_json::Value;

use super::*;
use crate::test_api::merge;

const USER: &str = "system:serviceaccount:podward-system:cloneset-controller";

/// The watch delivers a pod with a change of its metadata.
fn deliver(context: &Context, name: &str, version: u32, change: Value) {
    let pod = context.pods.of(SET).into_iter().find(|pod| pod.name_any() == name).unwrap();
    let mut metadata = json!(pod.metadata);
    merge(&mut metadata, change);
    metadata["resourceVersion"] = json!(version.to_string());
    let pod = json!({"metadata": metadata, "spec": {}, "status": {}});
    context.pods.deliver(serde_json::from_value(pod).unwrap());
}

fn requested() -> Value {
    let request = DeletionRequest::new(DeletionKind::Delete, USER, UnixNanos(7)).to_text();
    json!({"annotations": {DELETION_REQUEST: request}})
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
    let cheap = json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}});
    deliver(&context, &other, 1000, cheap);
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

#[tokio::test]
async fn a_set_that_is_scaled_out_again_withdraws_its_request() {
    let server = ApiServer::default();
    let (context, held, _) = held(&server).await;
    deliver(&context, &held, 1000, requested());
    scale(&context, 2).await;
    let [patch] = &server.patched_pods()[..] else { panic!("{:?}", server.patched_pods()) };
    let uid = context.pods.of(SET).iter().find(|pod| pod.name_any() == held).unwrap().uid();
    let expected = json!({"uid": uid, "resourceVersion": "1000", "annotations": {DELETION_REQUEST: null}});
    assert_eq!(patch["metadata"], expected);
    assert_eq!(server.created("pods").len(), 2, "no other pod takes its place");
}

/// Podward may have deleted it already.
#[tokio::test]
async fn a_request_that_has_its_permission_is_not_withdrawn() {
    let server = ApiServer::default();
    let (context, held, _) = held(&server).await;
    let mut change = requested();
    let stages = [Stage::Operating, Stage::Operate].map(|stage| (stage.key(DELETE_OPERATION), json!("1")));
    change["labels"] = Value::Object(stages.into_iter().collect());
    deliver(&context, &held, 1000, change);
    scale(&context, 2).await;
    assert_eq!(server.patched_pods(), Vec::<Value>::new());
}
