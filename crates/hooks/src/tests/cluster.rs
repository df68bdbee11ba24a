//! Against a real API server: the resource as it is derived, watches, and the precondition of status writes.

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::CustomResourceExt;
use kube::runtime::reflector;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use podward_api::LifecycleHook;
use podward_core::hooks::{HookAnswer, HookAnswers};
use podward_testbed::{Shape, TestCluster};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::hook_server::{HookServer, done};
use super::{TEST_TIMEOUT, hook, pod, question};
use crate::{HookArgs, HookCalls, HookObservers};

fn has(type_: &'static str, wanted: &'static str) -> impl Fn(Option<&LifecycleHook>) -> bool {
    move |hook: Option<&LifecycleHook>| {
        let status = hook.and_then(|hook| hook.status.as_ref());
        status.is_some_and(|status| {
            status.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == wanted)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_brings_hooks_and_keeps_their_status() {
    let cluster = TestCluster::builder(Shape::ControlPlane).name("hooks").start().await.unwrap();
    let client = cluster.client();
    let stop = CancellationToken::new();
    let (store, _writer) = reflector::store();
    // Begun without the resource: it comes to be known when that is installed.
    let (hook_calls, woken) = HookCalls::start(
        client.clone(),
        HookArgs::default(),
        super::dialer(),
        store,
        HookObservers::default(),
        stop.clone(),
    );
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = LifecycleHook::crd();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established = conditions::is_crd_established();
    tokio::time::timeout(TEST_TIMEOUT, await_condition(definitions, &definition.name_any(), established))
        .await
        .unwrap()
        .unwrap();

    let server = HookServer::start(|_| async { Ok(done("seen")) }).await;
    let hooks: Api<LifecycleHook> = Api::all(client.clone());
    let object = |value| serde_json::from_value::<LifecycleHook>(value).unwrap();
    hooks.create(&PostParams::default(), &object(server.hook("lb", json!({})))).await.unwrap();
    let until = |type_, wanted| {
        let reached = await_condition(hooks.clone(), "lb", has(type_, wanted));
        async move { tokio::time::timeout(TEST_TIMEOUT, reached).await.unwrap().unwrap().unwrap() }
    };
    let found = until("Reachable", "True").await;
    assert_eq!(found.status.as_ref().unwrap().observed_generation, Some(1));

    let (web, question) = (pod("web"), question("lb"));
    hook_calls.ask(&web, std::slice::from_ref(&question));
    let mut woken = Box::pin(woken);
    let answered = async {
        while !matches!(hook_calls.answers(web.uid()).answer(&question), Some(HookAnswer::Done(_))) {
            woken.next().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, answered).await.unwrap();

    // A slip in the spec, as far as the schema lets it through.
    let contradiction = json!([
        {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist"},
    ]);
    let slip = Patch::Merge(json!({"spec": {"podSelector": {"matchExpressions": contradiction}}}));
    hooks.patch("lb", &PatchParams::default(), &slip).await.unwrap();
    let refused = until("Accepted", "False").await;
    let message = &refused.status.unwrap().conditions[0].message;
    assert!(message.contains("spec.podSelector") && message.contains("in force still"), "{message}");

    // A status that was decided on by another version, or for another object of the name, is not written.
    let version = found.resource_version().unwrap();
    let stale = json!({"metadata": {"resourceVersion": version}, "status": {"callsInFlight": 7}});
    let error = hooks.patch_status("lb", &PatchParams::default(), &Patch::Merge(stale)).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 409));

    hooks.delete("lb", &DeleteParams::default()).await.unwrap();
    hooks.create(&PostParams::default(), &object(hook("lb", json!({"attachment": {}})))).await.unwrap();
    let other = until("Reachable", "False").await;
    let reachable = other.status.unwrap().conditions.into_iter().find(|found| found.type_ == "Reachable");
    assert!(reachable.unwrap().message.contains("no hook system is attached"));
    stop.cancel();
    hook_calls.stopped().await;
    cluster.down().await.unwrap();
}
