//! A hook that is deleted while pods wait for it releases them, and that is recorded.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_proto::v1::{DeregisterRequest, Phase};
use podward_support::pods;
use serde_json::json;

use super::{registry::Registry, reports::until_event, script::HookReply, server::HookServer};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_deleted_while_pods_wait", |fixture| removed(fixture, false)),
        Test::node("hook_deregistered_while_pods_wait", |fixture| removed(fixture, true)),
    ]
}

async fn removed(fixture: Arc<Fixture>, over_grpc: bool) -> Result<()> {
    let hook = HookServer::start(&fixture, "removed").await?;
    hook.put_reachable(json!({"phases": ["Prepare", "Complete", "Release"]})).await?;
    for pod in ["leaves", "returns", "dies"] {
        fixture.create(pod).await?;
    }
    for pod in ["leaves", "returns", "dies"] {
        fixture.until_available(pod).await?;
    }
    let operator = fixture.operator("a", "update");
    operator.begin("returns").await?;
    operator.await_operate("returns").await?;
    // From here on, the hook never answers DONE.
    for phase in [Phase::Prepare, Phase::Complete, Phase::Release] {
        hook.answer(phase, HookReply::Pending);
    }
    operator.begin("leaves").await?;
    operator.finish("returns").await?;
    fixture.create("born").await?;
    let broken =
        json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test of what holds a dying pod"}}});
    let uid = fixture.patch("dies", broken).await?.uid();
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default().grace_period(0)
    };
    fixture.api().delete("dies", &params).await.context("delete the pod dies")?;
    for (pod, phase) in [
        ("leaves", Phase::Prepare),
        ("returns", Phase::Complete),
        ("born", Phase::Complete),
        ("dies", Phase::Release),
    ] {
        hook.until_called_again(pod, phase, 2).await?;
    }
    let held = |pod: &Pod| pods::holders(pod).any(|finalizer| finalizer == hook.finalizer());
    for (pod, is_held) in [("leaves", true), ("returns", false), ("born", false), ("dies", true)] {
        let pod =
            fixture.feed().get(pod).with_context(|| format!("pod {pod} went while its hook held it"))?;
        let is_dying = pod.metadata.deletion_timestamp.is_some();
        ensure!(held(&pod) == is_held && (is_dying || !pods::is_available(&pod)), "{}", pods::describe(&pod));
    }

    if over_grpc {
        let name = hook.name().to_owned();
        let registry = Registry::of(&fixture).await?;
        registry.client()?.deregister(DeregisterRequest { name, namespace: String::new() }).await?;
        registry.end().await?;
    } else {
        hook.delete().await?;
    }
    let is_gone = |pods: &[&Pod]| !pods.iter().any(|pod| pod.name_any() == "dies");
    fixture.feed().until_pods("pod dies is gone", is_gone).await?;
    operator.await_operate("leaves").await?;
    operator.finish("leaves").await?;
    for pod in ["leaves", "returns", "born"] {
        operator.await_end(pod).await?;
        let nothing_left = |pod: &Pod| {
            let ours = [keys::AVAILABLE_CONDITIONS, keys::HOOK_REQUESTS, keys::EVIDENCE];
            let texts = ours.iter().filter_map(|key| pod.annotations().get(*key));
            !held(pod) && !texts.into_iter().any(|text| text.contains(hook.name()))
        };
        fixture.feed().until(pod, "nothing of the hook is left", nothing_left).await?;
    }
    for pod in ["leaves", "returns", "born", "dies"] {
        until_event(&fixture, pod, "HookRemoved", &[hook.name()]).await?;
    }
    Ok(())
}
