//! Pods that are gone, were replaced, or are not opted in any more.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use podward_core::UnixNanos;
use podward_core::hooks::{HookAnswers, HookPhase, HookQuestion, hook_finalizer};
use podward_core::keys::CONTROL_LABEL;
use podward_kube_util::CachedPod;
use serde_json::json;

use super::api_server::ApiServer;
use super::fixture::context;
use super::pod;
use crate::cleanup::Cleanup;

/// The pod `web-0` with this UID.
fn with_uid(uid: &str) -> Arc<CachedPod> {
    let mut pod = pod("web-0");
    pod["metadata"]["uid"] = json!(uid);
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[tokio::test]
async fn hooks_are_not_asked_about_a_pod_that_was_replaced_under_its_name() {
    let (store, mut writer) = reflector::store();
    let (context, _) = context(&ApiServer::new(), &store);
    let hooks = &context.deciders.hooks;
    let question = HookQuestion {
        hook: "balancer".to_owned(),
        phase: HookPhase::Complete,
        operations: Vec::new(),
        since: UnixNanos(1),
        deadline: UnixNanos(2),
    };
    let ask = |pod: &Arc<CachedPod>| {
        context.observe(pod);
        hooks.ask(pod, std::slice::from_ref(&question));
    };
    let is_asked = |uid: &str| hooks.answers(uid).answer(&question).is_some();
    for uid in ["first", "second"] {
        ask(&with_uid(uid));
    }
    assert_eq!((is_asked("first"), is_asked("second")), (false, true));

    // The third one is not reconciled.
    writer.apply_watcher_event(&Event::Apply((*with_uid("second")).clone()));
    Cleanup::default().run_once(&store, &context).await;
    assert!(is_asked("second"));
    writer.apply_watcher_event(&Event::Apply((*with_uid("third")).clone()));
    Cleanup::default().run_once(&store, &context).await;
    assert!(!is_asked("second"));
}

#[tokio::test]
async fn finalizers_on_a_pod_that_opted_out_are_removed_after_a_failure() {
    let server = ApiServer::new();
    let (store, _writer) = reflector::store();
    let ((context, _), mut cleanup) = (context(&server, &store), Cleanup::default());
    let mut stored = pod("web-0");
    stored["metadata"]["finalizers"] = json!([hook_finalizer("balancer"), "other"]);
    context.observe(&serde_json::from_value(stored.clone()).unwrap());
    stored["metadata"]["labels"].as_object_mut().unwrap().remove(CONTROL_LABEL);
    server.put(stored);

    let interval = Duration::from_secs(60);
    for status in [StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR] {
        server.reject("web-0", status);
        assert!(cleanup.run_once(&store, &context).await < interval, "{status}");
    }
    server.reject("none", StatusCode::OK);
    assert_eq!(cleanup.run_once(&store, &context).await, interval);
    assert_eq!(server.get("web-0").unwrap()["metadata"]["finalizers"], json!(["other"]));
    assert_eq!(server.reads(), 4);
    cleanup.run_once(&store, &context).await;
    assert_eq!(server.reads(), 4, "it is done");
}

#[tokio::test]
async fn a_pod_that_opted_in_again_keeps_its_finalizers() {
    let server = ApiServer::new();
    let (store, _writer) = reflector::store();
    let ((context, _), mut cleanup) = (context(&server, &store), Cleanup::default());
    let mut stored = pod("web-0");
    stored["metadata"]["finalizers"] = json!([hook_finalizer("balancer")]);
    context.observe(&serde_json::from_value(stored.clone()).unwrap());
    let mut out = stored.clone();
    out["metadata"]["labels"].as_object_mut().unwrap().remove(CONTROL_LABEL);
    server.put(out);
    server.reject("web-0", StatusCode::CONFLICT);
    cleanup.run_once(&store, &context).await;
    server.reject("none", StatusCode::OK);
    server.put(stored);
    assert_eq!(cleanup.run_once(&store, &context).await, Duration::from_secs(60));
    assert_eq!(server.writes("web-0"), 0);
}
