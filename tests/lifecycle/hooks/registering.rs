//! Hooks work the same whichever way they were registered, and a hook that cannot work is rejected or reported at
//! once.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::Api;
use podward_api::{HookStatus, LifecycleHook};
use podward_e2e::{Fixture, NAMESPACE_NAME, Test};
use podward_proto::v1::{self, Phase, hook::Connection};
use podward_support::pods;
use serde_json::json;
use tonic::Code;

use super::{
    registry::Registry,
    script::HookReply,
    server::{HookServer, has, put, unique, until_status},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_by_kubectl_and_by_grpc", hook_by_kubectl_and_by_grpc),
        Test::node("hook_that_cannot_work", hook_that_cannot_work),
        Test::node("hook_for_no_pod_yet", hook_for_no_pod_yet),
    ]
}

fn of_namespace(namespace: &str) -> v1::LabelSelector {
    v1::LabelSelector {
        match_labels: [(NAMESPACE_NAME.to_owned(), namespace.to_owned())].into(),
        match_expressions: Vec::new(),
    }
}

fn hook_of(fixture: &Fixture, server: &HookServer) -> v1::Hook {
    v1::Hook {
        name: server.name().to_owned(),
        namespace_selector: Some(of_namespace(fixture.namespace())),
        phases: [Phase::Prepare, Phase::Complete].map(Into::into).to_vec(),
        connection: Some(Connection::Endpoint(server.connection())),
        ..v1::Hook::default()
    }
}

async fn hook_by_kubectl_and_by_grpc(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let applied = HookServer::start(&fixture, "applied").await?;
    let registered = HookServer::start(&fixture, "registered").await?;
    let both = [&applied, &registered];
    applied.put(json!({"phases": ["Prepare", "Complete"]})).await?;
    let request = v1::RegisterRequest { hook: Some(hook_of(&fixture, &registered)) };
    registry.client()?.register(request).await?;
    for hook in both {
        let works = |status: &HookStatus| has(status, "Accepted", "True") && has(status, "Reachable", "True");
        hook.until_status("it works", works).await?;
    }
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let mut specs = Vec::new();
    for hook in both {
        let mut spec = hooks.get(hook.name()).await?.spec;
        spec.endpoint = None;
        specs.push(spec);
    }
    ensure!(specs[0] == specs[1], "the defaults differ: {specs:#?}");

    fixture.create("web").await?;
    let pod = fixture.until_available("web").await?;
    let finalizers = both.map(HookServer::finalizer);
    ensure!(
        finalizers.iter().all(|finalizer| pods::holders(&pod).any(|holder| holder == finalizer)),
        "{pod:?}"
    );
    both.into_iter().for_each(|hook| hook.answer(Phase::Prepare, HookReply::Silent));
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    for hook in both {
        hook.until_called("web", Phase::Prepare).await?;
        let is_asked = |status: &HookStatus| {
            status.calls_in_flight == 1
                && status.last_answer_time.is_some()
                && status.latency_p50_milliseconds.is_some()
                && status.last_error.is_none()
        };
        hook.until_status("a question is open", is_asked).await?;
    }
    let listed = registry.client()?.list(v1::ListRequest::default()).await?.into_inner().hooks;
    for hook in both {
        let state =
            listed.iter().find(|state| state.hook.as_ref().is_some_and(|one| one.name == hook.name()));
        let state = state.context("a hook is not listed")?;
        ensure!(
            state.reachable && state.calls_in_flight == 1 && state.last_answer_time.is_some(),
            "{state:?}"
        );
        hook.answer(Phase::Prepare, HookReply::Done);
    }
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;
    registry.end().await
}

/// An endpoint that refuses connections, and selectors that match nothing.
async fn hook_that_cannot_work(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let dead = HookServer::start(&fixture, "dead").await?;
    dead.shut_down().await?;
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let register = async |hook: v1::Hook| {
        let answer = registry.client()?.register(v1::RegisterRequest { hook: Some(hook) }).await;
        answer.err().context("it was taken")
    };
    let refused = register(hook_of(&fixture, &dead)).await?;
    ensure!(refused.code() == Code::FailedPrecondition, "{refused:?}");
    let words = refused.message();
    ensure!(words.contains("can't be reached") && words.contains("refused"), "{words}");
    ensure!(hooks.get_opt(dead.name()).await?.is_none(), "a hook that can't be reached was stored");
    // If it is applied anyway, its status and `kubectl get` show the problem.
    dead.put(json!({"phases": ["Prepare", "Complete"]})).await?;
    let is_told = |status: &HookStatus| {
        has(status, "Reachable", "False")
            && status.last_error.as_ref().is_some_and(|error| error.contains("refused"))
    };
    dead.until_status("it can't be reached", is_told).await?;
    let listed = registry.client()?.list(v1::ListRequest::default()).await?.into_inner().hooks;
    let state = listed.iter().find(|state| state.hook.as_ref().is_some_and(|one| one.name == dead.name()));
    ensure!(state.is_some_and(|state| !state.reachable && state.last_error.contains("refused")), "{state:?}");
    dead.delete().await?;

    dead.come_back().await?;
    let contradiction = v1::LabelSelector {
        match_labels: [("app".to_owned(), "web".to_owned())].into(),
        match_expressions: vec![v1::LabelSelectorRequirement {
            key: "app".to_owned(),
            operator: "NotIn".to_owned(),
            values: vec!["web".to_owned()],
        }],
    };
    let nothing = v1::Hook { pod_selector: Some(contradiction), ..hook_of(&fixture, &dead) };
    let refused = register(nothing).await?;
    ensure!(refused.code() == Code::InvalidArgument, "{refused:?}");
    ensure!(refused.message().contains("odSelector"), "{refused:?}");
    let name = unique("contradicts");
    let expressions = json!([{"key": "app", "operator": "NotIn", "values": ["web"]}]);
    let spec = json!({
        "podSelector": {"matchLabels": {"app": "web"}, "matchExpressions": expressions}, "phases": ["Prepare"],
    });
    put(&hooks, &name, fixture.namespace(), dead.endpoint(), spec).await?;
    let is_told = |status: &HookStatus| has(status, "Accepted", "False") && has(status, "Reachable", "False");
    let status = until_status(&hooks, &name, "it is refused", is_told).await?;
    let told = status.conditions.iter().find(|condition| condition.type_ == "Accepted");
    ensure!(told.is_some_and(|told| told.message.contains("podSelector")), "{status:?}");
    registry.end().await
}

/// It may be intended, but it is reported as long as it lasts.
async fn hook_for_no_pod_yet(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let hook = HookServer::start(&fixture, "early").await?;
    let request = v1::RegisterRequest { hook: Some(hook_of(&fixture, &hook)) };
    let answer = registry.client()?.register(request).await?.into_inner();
    ensure!(answer.warnings.iter().any(|words| words.contains("matches no pod")), "{:?}", answer.warnings);
    let reason = |status: &HookStatus, wanted: &str| {
        let mut accepted = status.conditions.iter().filter(|one| one.type_ == "Accepted");
        accepted.any(|one| one.status == "True" && one.reason == wanted)
    };
    hook.until_status("it is for no pod", |status| reason(status, "MatchesNoPod")).await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let answer =
        registry.client()?.register(v1::RegisterRequest { hook: Some(hook_of(&fixture, &hook)) }).await?;
    ensure!(answer.get_ref().warnings.is_empty(), "{:?}", answer.get_ref().warnings);
    hook.until_status("it is for a pod", |status| reason(status, "Valid")).await?;
    registry.end().await
}
