//! Reconciliations against a stand-in API server.

use http::Method;
use podward_runtime::progress::Progress;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::test_api::{ApiServer, set};

const LIMIT: Duration = Duration::from_millis(1800);

async fn fails(set: &Arc<CloneSet>, context: &Arc<Context>) {
    let error = reconcile(Arc::clone(set), Arc::clone(context)).await.unwrap_err();
    on_error(Arc::clone(set), &error, Arc::clone(context));
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
