//! Reconciliations against a stand-in API server.

use http::Method;
use podward_api::clone_set::CloneSetStatus;
use podward_core::cloneset::keys;
use podward_runtime::progress::Progress;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::test_api::{ApiServer, set};

mod conflicts;
mod requests;
mod webhook_secret;

const SET: &str = "set-uid";
const LIMIT: Duration = Duration::from_millis(1800);

async fn fails(set: &Arc<CloneSet>, context: &Arc<Context>) {
    let error = reconcile(Arc::clone(set), Arc::clone(context)).await.unwrap_err();
    on_error(Arc::clone(set), &error, Arc::clone(context));
}

/// Returns the reason and the message of a condition of the status that was written last.
fn condition(context: &Context, kind: &str) -> Option<(String, String)> {
    let (status, _) = context.written_status(SET)?;
    let found = status.conditions.into_iter().find(|condition| condition.type_ == kind)?;
    Some((found.reason, found.message))
}

/// The next status can be written at once.
fn wait_for_interval(context: &Context) {
    context.remember(SET, |memory| {
        if let Some((_, at)) = &mut memory.status {
            *at = at.checked_sub(Duration::from_secs(1)).unwrap();
        }
    });
}

#[tokio::test]
async fn a_failure_before_the_plan_is_in_the_status() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let set = Arc::new(set(json!({})));
    server.refuse(Method::POST, "controllerrevisions", "NAME is not allowed");
    fails(&set, &context).await;
    let (reason, message) = condition(&context, CloneSetCondition::FAILED_UPDATE).unwrap();
    assert_eq!(reason, "NotReconciled");
    assert!(message.starts_with("could not create ControllerRevision web-"), "{message}");
    assert_eq!(context.written_status(SET).unwrap().0.observed_generation, None);
    server.refuse(Method::POST, "nothing", "");
    wait_for_interval(&context);
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    assert_eq!(condition(&context, CloneSetCondition::FAILED_UPDATE), None);
    assert_eq!(context.written_status(SET).unwrap().0.observed_generation, Some(1));
}

/// The set is valid, and what it needs is tried again.
#[tokio::test]
async fn a_revision_that_is_gone_does_not_make_the_set_invalid() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    // The watch is ahead of the creation, and does not know the revision.
    let later = json!({"metadata": {"name": "x", "namespace": "test", "uid": "x", "resourceVersion": "1000"}, "revision": 1});
    context.revisions.deliver(serde_json::from_value(later).unwrap());
    fails(&Arc::new(set(json!({}))), &context).await;
    let (reason, message) = condition(&context, CloneSetCondition::FAILED_UPDATE).unwrap();
    assert_eq!(reason, "NotReconciled");
    assert!(message.ends_with(" was deleted"), "{message}");
}

#[tokio::test]
async fn no_status_is_written_for_a_server_with_too_much_to_do() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let set = Arc::new(set(json!({})));
    let is_written = || context.written_status(SET).is_some();
    for _ in 0..3 {
        server.refuse_with(429, Method::POST, "controllerrevisions", "too many requests");
        fails(&set, &context).await;
        assert!(!is_written());
    }
    context.succeeded(SET);
    server.refuse_with(500, Method::POST, "controllerrevisions", "failed calling webhook");
    fails(&set, &context).await;
    assert!(!is_written(), "it may not last");
    fails(&set, &context).await;
    let (_, message) = condition(&context, CloneSetCondition::FAILED_UPDATE).unwrap();
    assert!(message.contains("failed calling webhook"), "{message}");
}

#[tokio::test]
async fn a_claim_that_cannot_be_deleted_is_in_the_status() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let set = |replicas: u32| {
        let claim = json!({"metadata": {"name": "data"}, "spec": {}});
        Arc::new(set(json!({"replicas": replicas, "volumeClaimTemplates": [claim]})))
    };
    reconcile(set(1), Arc::clone(&context)).await.unwrap();
    reconcile(set(0), Arc::clone(&context)).await.unwrap();
    server.refuse(Method::DELETE, "persistentvolumeclaims", "no");
    wait_for_interval(&context);
    fails(&set(0), &context).await;
    let (_, message) = condition(&context, CloneSetCondition::FAILED_SCALE).unwrap();
    assert!(message.starts_with("could not delete PersistentVolumeClaim data-web-"), "{message}");
}

/// The watch delivers that the updates of all pods do not go on.
fn deliver_blocked(context: &Context) {
    for pod in context.pods.of(SET) {
        let mut pod = Pod::clone(&pod);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(keys::STATE_LABEL.to_owned(), "Updating".to_owned());
        pod.metadata
            .annotations
            .get_or_insert_default()
            .insert(keys::UPDATE_STATE.to_owned(), "{".to_owned());
        pod.metadata.resource_version = Some("1000".to_owned());
        context.pods.deliver(pod);
    }
}

#[tokio::test]
async fn an_update_that_does_not_go_on_is_in_the_status() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let set = Arc::new(set(json!({"replicas": 2})));
    reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
    deliver_blocked(&context);
    let first = context.pods.of(SET)[0].name_any();
    wait_for_interval(&context);
    reconcile(set, Arc::clone(&context)).await.unwrap();
    let (_, message) = condition(&context, CloneSetCondition::FAILED_UPDATE).unwrap();
    let begin =
        format!("the update of pod {first} does not go on: the annotation {} cannot", keys::UPDATE_STATE);
    assert!(message.starts_with(&begin) && message.ends_with("; and 1 pod more"), "{message}");
}

/// As if the status was lost, or the set has taken over the pods of another one.
#[tokio::test]
async fn pods_of_the_partition_get_the_revision_of_others() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({"replicas": 2}))), Arc::clone(&context)).await.unwrap();
    context.forget(SET);
    let update = json!({"replicas": 3, "updateStrategy": {"partition": 3}, "template": template("web:2")});
    reconcile(Arc::new(set(update)), Arc::clone(&context)).await.unwrap();
    assert_eq!(images(&server), ["web:1"; 3]);
    let (status, _) = context.written_status(SET).unwrap();
    assert_ne!(status.current_revision, status.update_revision);
}

/// Returns a template with this image.
fn template(image: &str) -> serde_json::Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

/// Returns the images of the pods in the order of their creation.
fn images(server: &ApiServer) -> Vec<String> {
    let image = |pod: &serde_json::Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    server.created("pods").iter().map(image).collect()
}

/// Returns the status with the first revision, after the pods were changed in place to `web:2`. `is_written`: the last
/// status says so.
async fn updated(server: &ApiServer, replicas: u32, is_written: bool) -> (Arc<Context>, CloneSetStatus) {
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({"replicas": replicas}))), Arc::clone(&context)).await.unwrap();
    let (first, _) = context.written_status(SET).unwrap();
    let strategy = json!({"type": "InPlaceIfPossible", "maxUnavailable": "100%"});
    let change = json!({"replicas": replicas, "template": template("web:2"), "updateStrategy": strategy});
    let second = Arc::new(set(change));
    for _ in 0..3 {
        if is_written {
            wait_for_interval(&context);
        }
        reconcile(Arc::clone(&second), Arc::clone(&context)).await.unwrap();
    }
    let (last, _) = context.written_status(SET).unwrap();
    assert_eq!(last.current_revision != first.current_revision, is_written);
    (context, first)
}

/// Returns the set whose first two pods keep their image, with a status.
fn with_partition(status: CloneSetStatus, max_surge: u32) -> Arc<CloneSet> {
    let strategy = json!({"partition": 2, "maxSurge": max_surge});
    let change = json!({"template": template("web:3"), "updateStrategy": strategy, "replicas": 2});
    let mut set = set(change);
    set.status = Some(status);
    Arc::new(set)
}

/// The event with the next template has the status of an earlier time.
#[tokio::test]
async fn pods_of_the_partition_do_not_get_an_older_revision() {
    for is_written in [true, false] {
        let server = ApiServer::default();
        let (context, first) = updated(&server, 1, is_written).await;
        for _ in 0..2 {
            wait_for_interval(&context);
            reconcile(with_partition(first.clone(), 0), Arc::clone(&context)).await.unwrap();
        }
        assert_eq!(images(&server), ["web:1", "web:2"], "the status was written: {is_written}");
        let (status, _) = context.written_status(SET).unwrap();
        assert_ne!(status.current_revision, first.current_revision);
    }
}

/// The controller ended when all pods had the second revision, before it wrote that. Another writer deletes a pod.
#[tokio::test]
async fn a_rollout_whose_end_was_not_written_is_known_after_a_restart() {
    // If it was an update of some pods only, the others had the first revision.
    // With maxSurge, there was one pod more than should have the second one.
    let cases =
        [(2, 2, 0, "web:2"), (2, 1, 0, "web:1"), (3, 2, 1, "web:2"), (2, 1, 1, "web:1"), (3, 2, 0, "web:1")];
    for (replicas, expected, max_surge, image) in cases {
        let server = ApiServer::default();
        let (context, first) = updated(&server, 2, true).await;
        let (last, _) = context.written_status(SET).unwrap();
        context.forget(SET);
        context.pods.removed(&context.pods.of(SET)[0]);
        let status = CloneSetStatus {
            current_revision: first.current_revision.clone(),
            replicas,
            expected_updated_replicas: expected,
            ..last
        };
        for _ in 0..2 {
            reconcile(with_partition(status.clone(), max_surge), Arc::clone(&context)).await.unwrap();
        }
        assert_eq!(
            images(&server),
            ["web:1", "web:1", image],
            "{expected} of {replicas} pods should be updated"
        );
    }
}

#[tokio::test]
async fn one_plan_creates_a_limited_number_of_pods() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let set = Arc::new(set(json!({"replicas": 1200})));
    for created in [500, 1000, 1200] {
        let next = reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
        assert_eq!(server.created("pods").len(), created);
        assert_eq!(next, Action::requeue(Duration::ZERO));
    }
}

/// Each request takes a third of the limit, and all of them take longer than it.
#[tokio::test]
async fn a_large_plan_makes_progress() {
    let server = ApiServer::default();
    let progress = Progress::new(LIMIT);
    let context = server.context(progress.clone());
    let progresses = async |replicas: usize| {
        // The pods that are adopted are not replaced.
        let set = set(json!({"replicas": replicas, "updateStrategy": {"paused": true}}));
        let work = reconcile(Arc::new(set), Arc::clone(&context));
        let stalls = async {
            loop {
                tokio::time::sleep(LIMIT / 30).await;
                if let Some(since) = progress.stalled_for() {
                    return since;
                }
            }
        };
        tokio::select! {
            result = work => drop(result.unwrap()),
            since = stalls => panic!("{replicas} replicas: nothing has ended for {since:?}"),
        }
    };
    for name in (0..5).map(|orphan| format!("orphan-{orphan}")) {
        let labels = json!({"app": "web"});
        let pod = json!({"metadata": {
            "name": name, "namespace": "test", "uid": name, "resourceVersion": "1", "labels": labels,
        }});
        server.store_pod(&name, pod.clone());
        context.pods.deliver(serde_json::from_value(pod).unwrap());
    }
    server.delay(LIMIT / 3);
    progresses(5).await;
    assert_eq!(context.pods.of("set-uid").len(), 5, "they are adopted");
    progresses(60).await;
    server.delay(Duration::ZERO);
    progresses(200).await;
    server.delay(LIMIT / 3);
    progresses(0).await;
    assert_eq!(server.deleted("pods"), 200);
}

#[tokio::test]
async fn nothing_is_begun_when_another_replica_leads() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({"replicas": 2}))), Arc::clone(&context)).await.unwrap();
    context.stop.cancel();
    reconcile(Arc::new(set(json!({"replicas": 4}))), Arc::clone(&context)).await.unwrap();
    assert_eq!(server.created("pods").len(), 2);
    reconcile(Arc::new(set(json!({"replicas": 0}))), Arc::clone(&context)).await.unwrap();
    assert_eq!(server.deleted("pods"), 0);
}

#[tokio::test]
async fn a_plan_ends_when_another_replica_leads() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    server.delay(Duration::from_millis(20));
    let work = tokio::spawn(reconcile(Arc::new(set(json!({"replicas": 400}))), Arc::clone(&context)));
    while server.created("pods").len() < 10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    context.stop.cancel();
    // As many as can be under way.
    let most = server.created("pods").len() + 32;
    work.await.unwrap().unwrap();
    assert!(server.created("pods").len() <= most, "{} pods", server.created("pods").len());
}

#[tokio::test]
async fn steps_that_fail_are_one_event() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({"replicas": 40}))), Arc::clone(&context)).await.unwrap();
    let fewer = Arc::new(set(json!({"replicas": 10})));
    let failures = async || {
        let events = server.events(&context).await;
        events.into_iter().filter(|(_, reason, _)| reason == "FailedDelete").collect::<Vec<_>>()
    };
    server.refuse(Method::DELETE, "pods", "pods \"NAME\" is forbidden: by the first policy");
    fails(&fewer, &context).await;
    let [(kind, _, text)] = &failures().await[..] else { panic!("{:?}", failures().await) };
    assert_eq!(kind, "Warning");
    assert!(text.starts_with("30 pods; the first: could not delete pod test/web-"), "{text}");
    fails(&fewer, &context).await;
    assert_eq!(failures().await.len(), 1, "it has not changed");
    server.refuse(Method::DELETE, "pods", "pods \"NAME\" is forbidden: by the second policy");
    fails(&fewer, &context).await;
    assert_eq!(failures().await.len(), 2, "it has changed");
}

#[tokio::test]
async fn creations_that_wait_are_a_warning() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let set = set(json!({"replicas": 3, "scaleStrategy": {"maxUnavailable": 1}}));
    reconcile(Arc::new(set), Arc::clone(&context)).await.unwrap();
    let events = server.events(&context).await;
    assert!(
        events.iter().any(|(kind, reason, _)| kind == "Warning" && reason == "ScaleUpLimited"),
        "{events:?}"
    );
}

#[tokio::test]
async fn every_reconciliation_that_fails_is_counted() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let mut registry = Registry::with_prefix("podward");
    context.metrics.register(&mut registry);
    let counts = |count: u32| {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = format!("podward_cloneset_errors_total {count}");
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    };
    let steps = [
        (Method::POST, "controllerrevisions", 1),
        (Method::PATCH, "clonesets", 1),
        (Method::DELETE, "pods", 0),
    ];
    for (count, (method, resource, replicas)) in (1..).zip(steps) {
        server.refuse(method, resource, "no");
        context.forget(SET);
        fails(&Arc::new(set(json!({"replicas": replicas}))), &context).await;
        counts(count);
    }
    // Another writer was faster.
    let status = json!({"status": "Failure", "code": 409, "message": "", "reason": "Conflict"});
    let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
    let outdated = SetError::Api { what: "write pod", object: "test/web-a".to_owned(), source };
    on_error(Arc::new(set(json!({}))), &outdated, Arc::clone(&context));
    counts(3);
}
