//! Claims of pods that their set and others delete, against a stand-in API server.

use std::time::Duration;

use http::Method;
use kube::runtime::controller::Action;
use podward_core::cloneset::keys::INSTANCE_ID;
use podward_runtime::progress::Progress;
use serde_json::{Value, json};

use super::*;
use crate::foreign_names::ForeignNames;
use crate::reconcile::reconcile;
use crate::test_api::{ApiServer, set};

const SET: &str = "set-uid";

fn owned(name: &str, version: u32) -> Value {
    let id = name.rsplit('-').next();
    let owner = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": SET, "controller": true,
    });
    json!({"metadata": {
        "name": name, "namespace": "test", "uid": format!("{name}-{version}"), "resourceVersion": version.to_string(),
        "labels": {"app": "web", INSTANCE_ID: id}, "ownerReferences": [owner],
    }})
}

/// Returns a context with the pod `web-aaaaa`, which `change` changes, and its claim.
fn with_pod(server: &ApiServer, change: impl Fn(&mut Value)) -> Arc<Context> {
    let context = server.context(Progress::default());
    let mut pod = owned("web-aaaaa", 1);
    change(&mut pod);
    context.pods.deliver(serde_json::from_value(pod).unwrap());
    context.claims.deliver(serde_json::from_value(owned("data-web-aaaaa", 1)).unwrap());
    context
}

fn with_claims(replicas: u32, reuse: bool) -> Arc<CloneSet> {
    changed(replicas, reuse, json!({}))
}

fn changed(replicas: u32, reuse: bool, change: Value) -> Arc<CloneSet> {
    let mut spec = json!({
        "replicas": replicas,
        "scaleStrategy": {"disablePVCReuse": !reuse},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    Arc::new(set(spec))
}

fn terminate(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
}

fn created(server: &ApiServer) -> Vec<String> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    server.created("pods").iter().map(name).collect()
}

#[tokio::test]
async fn a_new_pod_gets_the_claims_of_one_that_others_delete() {
    let server = ApiServer::default();
    let context = with_pod(&server, terminate);
    let set = with_claims(1, true);
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!(created(&server), Vec::<String>::new(), "it has the name that the new pod gets");
    let (status, _) = context.written_status(SET).unwrap();
    let message = &status.conditions.iter().find(|it| it.type_ == "FailedScale").unwrap().message;
    assert!(message.starts_with("pod web-aaaaa is terminating; the pod that replaces it"), "{message}");
    let mut gone = owned("web-aaaaa", 2);
    gone["metadata"]["uid"] = json!("web-aaaaa-1");
    context.pods.delete(&serde_json::from_value(gone).unwrap());
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!(created(&server), ["web-aaaaa"]);
    assert_eq!(context.claims.of(SET).len(), 1);
}

#[tokio::test]
async fn a_pod_that_has_failed_makes_room_for_another() {
    let server = ApiServer::default();
    let context = with_pod(&server, |pod| pod["status"] = json!({"phase": "Failed"}));
    let set = with_claims(1, true);
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!((server.deleted("pods"), created(&server).len()), (1, 0));
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!(created(&server), ["web-aaaaa"]);
    assert_eq!(context.claims.of(SET).len(), 1);
}

#[tokio::test]
async fn a_failed_pod_that_cannot_be_deleted_stops_no_other() {
    let server = ApiServer::default();
    let context = with_pod(&server, |pod| pod["status"] = json!({"phase": "Failed"}));
    server.refuse(Method::DELETE, "pods", "NAME is held");
    let refused = reconcile(with_claims(2, true), Arc::clone(&context)).await.unwrap_err();
    assert!(refused.to_string().contains("could not delete the ended pod web-aaaaa"), "{refused}");
    assert_eq!(created(&server).len(), 1);
}

/// Only the operator of the hook removes its finalizer, and nothing asks it to.
#[tokio::test]
async fn a_pod_with_the_finalizer_of_a_hook_is_replaced_at_once() {
    let server = ApiServer::default();
    let context = with_pod(&server, |pod| {
        terminate(pod);
        pod["metadata"]["finalizers"] = json!(["example.com/in-use"]);
    });
    let hook = json!({"lifecycle": {"preDelete": {"finalizersHandler": ["example.com/in-use"]}}});
    reconcile(changed(1, true, hook), Arc::clone(&context)).await.unwrap();
    let created = created(&server);
    assert!(created.len() == 1 && created[0] != "web-aaaaa", "{created:?}");
    assert_eq!(context.claims.of(SET).len(), 2, "the claim of the other pod stays");
}

/// Somebody has changed the labels of the pod to look at it, so the set does not control it any more.
#[tokio::test]
async fn a_pod_that_was_taken_away_keeps_its_name() {
    let server = ApiServer::default();
    let context = with_pod(&server, |pod| {
        pod["metadata"]["labels"]["app"] = json!("quarantine");
        pod["metadata"]["ownerReferences"] = json!([]);
    });
    reconcile(with_claims(1, true), Arc::clone(&context)).await.unwrap();
    let created = created(&server);
    assert!(created.len() == 1 && created[0] != "web-aaaaa", "{created:?}");
}

/// As the one before, and claims go with the pods.
#[tokio::test]
async fn a_pod_that_was_taken_away_keeps_its_claims() {
    let server = ApiServer::default();
    let context = with_pod(&server, |pod| {
        pod["metadata"]["labels"]["app"] = json!("quarantine");
        server.store_pod("web-aaaaa", pod.clone());
    });
    let set = with_claims(1, false);
    for _ in 0..2 {
        reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    }
    assert_eq!(server.deleted("persistentvolumeclaims"), 0);
    assert!(context.claims.of(SET).iter().any(|claim| claim.name_any() == "data-web-aaaaa"));
}

/// Stores the pod `web-aaaaa` of another owner.
fn store_foreign(server: &ApiServer) {
    let mut other = owned("web-aaaaa", 1);
    other["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
    other["metadata"]["ownerReferences"][0]["name"] = json!("other");
    server.store_pod("web-aaaaa", other);
}

/// Somebody has changed the labels of the pod, and a ReplicaSet has adopted it.
#[tokio::test]
async fn a_name_of_a_pod_of_another_owner_stops_no_creation() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    store_foreign(&server);
    context.claims.deliver(serde_json::from_value(owned("data-web-aaaaa", 1)).unwrap());
    for _ in 0..2 {
        reconcile(with_claims(2, true), Arc::clone(&context)).await.unwrap();
    }
    let names: Vec<String> = context.pods.of(SET).iter().map(|pod| pod.name_any()).collect();
    assert!(names.len() == 2 && !names.contains(&"web-aaaaa".to_owned()), "{names:?}");
    let claims: Vec<String> = context.claims.of(SET).iter().map(|claim| claim.name_any()).collect();
    for name in names {
        assert!(claims.contains(&format!("data-{name}")), "{claims:?}");
    }
    let note = "a pod of ReplicaSet other has the name web-aaaaa: a new pod gets another name, and other \
                PersistentVolumeClaims";
    let events = server.events(&context).await;
    assert!(events.contains(&("Warning".to_owned(), "NameTaken".to_owned(), note.to_owned())), "{events:?}");
}

#[tokio::test]
async fn a_taken_name_stops_no_reuse_of_other_claims() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    store_foreign(&server);
    for claim in ["data-web-aaaaa", "data-web-bbbbb"] {
        context.claims.deliver(serde_json::from_value(owned(claim, 1)).unwrap());
    }
    let set = with_claims(1, true);
    let next = reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!(next, Action::requeue(Duration::ZERO));
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    let names: Vec<String> = context.pods.of(SET).iter().map(|pod| pod.name_any()).collect();
    assert_eq!((names, context.claims.of(SET).len()), (vec!["web-bbbbb".to_owned()], 2));
    // It is deleted by others, and the name is still taken.
    context.pods.removed(&context.pods.of(SET)[0]);
    let before = created(&server).len();
    server.forget_pod("web-bbbbb");
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!(created(&server)[before..], ["web-bbbbb"]);
    // Another attempt is made some minutes later.
    context.pods.removed(&context.pods.of(SET)[0]);
    server.forget_pod("web-bbbbb");
    server.forget_pod("web-aaaaa");
    context.remember(SET, |memory| memory.foreign_names = ForeignNames::default());
    reconcile(set, Arc::clone(&context)).await.unwrap();
    assert_eq!(created(&server).last().unwrap(), "web-aaaaa");
}

#[tokio::test]
async fn a_new_pod_waits_for_claims_when_the_name_of_others_is_taken() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    store_foreign(&server);
    for claim in ["data-web-aaaaa", "data-web-bbbbb"] {
        context.claims.deliver(serde_json::from_value(owned(claim, 1)).unwrap());
    }
    let mut ends = owned("web-bbbbb", 1);
    terminate(&mut ends);
    context.pods.deliver(serde_json::from_value(ends).unwrap());
    for _ in 0..2 {
        reconcile(with_claims(1, true), Arc::clone(&context)).await.unwrap();
    }
    assert_eq!((created(&server), context.claims.of(SET).len()), (vec!["web-aaaaa".to_owned()], 2));
    // No write of the status is left.
    context.remember(SET, |memory| memory.status = None);
    reconcile(with_claims(1, true), Arc::clone(&context)).await.unwrap();
    let (status, _) = context.written_status(SET).unwrap();
    let mut set = CloneSet::clone(&with_claims(1, true));
    set.status = Some(status);
    let next = reconcile(Arc::new(set), Arc::clone(&context)).await.unwrap();
    assert_ne!(next, Action::await_change(), "no event says that the name is free");
}

/// Somebody has changed the label with its identity.
#[tokio::test]
async fn a_pod_of_the_set_with_another_identity_keeps_its_name() {
    let server = ApiServer::default();
    let context = with_pod(&server, |pod| {
        pod["metadata"]["labels"][INSTANCE_ID] = json!("zzzzz");
        server.store_pod("web-aaaaa", pod.clone());
    });
    let set = changed(2, true, json!({"updateStrategy": {"paused": true}}));
    for _ in 0..3 {
        reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    }
    let names: Vec<String> = context.pods.of(SET).iter().map(|pod| pod.name_any()).collect();
    assert_eq!((names.len(), created(&server).len()), (2, 2), "one attempt, and the other pod: {names:?}");
}

/// The answer to its creation was lost, and the watch has not delivered it.
#[tokio::test]
async fn a_pod_of_the_set_that_exists_already_is_no_problem() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    server.store_pod("web-aaaaa", owned("web-aaaaa", 1));
    context.claims.deliver(serde_json::from_value(owned("data-web-aaaaa", 1)).unwrap());
    reconcile(with_claims(1, true), Arc::clone(&context)).await.unwrap();
    let names: Vec<String> = context.pods.of(SET).iter().map(|pod| pod.name_any()).collect();
    assert_eq!((names, created(&server).len()), (vec!["web-aaaaa".to_owned()], 1));
}

/// The name may be that of a new pod a moment later.
#[tokio::test]
async fn names_of_pods_that_are_gone_leave_the_list_first() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    context.claims.deliver(serde_json::from_value(owned("data-web-aaaaa", 1)).unwrap());
    let listed = json!({"scaleStrategy": {"podsToDelete": ["web-aaaaa"]}});
    let next = reconcile(changed(1, true, listed), Arc::clone(&context)).await.unwrap();
    assert_eq!((next, created(&server).len()), (Action::await_change(), 0));
}

#[tokio::test]
async fn claims_of_a_pod_that_the_set_deletes_go_with_it() {
    let server = ApiServer::default();
    let context = with_pod(&server, |_| {});
    let set = with_claims(0, true);
    for _ in 0..2 {
        reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    }
    assert_eq!((server.deleted("pods"), context.claims.of(SET).len()), (1, 0));
}

#[tokio::test]
async fn claims_that_are_not_reused_go_with_their_pod() {
    let server = ApiServer::default();
    let context = with_pod(&server, terminate);
    reconcile(with_claims(1, false), Arc::clone(&context)).await.unwrap();
    let created = created(&server);
    assert!(created.len() == 1 && created[0] != "web-aaaaa", "{created:?}");
    let claims = context.claims.of(SET);
    assert!(claims.len() == 1 && claims[0].name_any() != "data-web-aaaaa", "{claims:?}");
}
