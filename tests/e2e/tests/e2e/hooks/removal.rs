//! A hook that is removed while pods wait for it releases them, on record.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use podward_core::keys;
use podward_e2e::{Scene, Test};
use podward_proto::v1::{DeregisterRequest, Phase};
use podward_support::pods;
use serde_json::json;

use super::{registry::Registry, script::Reply, server::HookServer, told::until_event};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_deleted_while_pods_wait", |scene| removed(scene, false)),
        Test::node("hook_deregistered_while_pods_wait", |scene| removed(scene, true)),
    ]
}

async fn removed(scene: Arc<Scene>, over_grpc: bool) -> Result<()> {
    let hook = HookServer::start(&scene, "removed").await?;
    hook.put_reachable(json!({"phases": ["Prepare", "Complete", "Release"]})).await?;
    for pod in ["leaves", "returns", "dies"] {
        scene.create(pod).await?;
    }
    for pod in ["leaves", "returns", "dies"] {
        scene.until_available(pod).await?;
    }
    let operator = scene.operator("a", "update");
    operator.begin("returns").await?;
    operator.await_operate("returns").await?;
    // From here on it is done with nothing.
    for phase in [Phase::Prepare, Phase::Complete, Phase::Release] {
        hook.answer(phase, Reply::Pending);
    }
    operator.begin("leaves").await?;
    operator.finish("returns").await?;
    scene.create("born").await?;
    let broken =
        json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test of what holds a dying pod"}}});
    let uid = scene.patch("dies", broken).await?.uid();
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default().grace_period(0)
    };
    scene.api().delete("dies", &params).await.context("delete the pod dies")?;
    for (pod, phase) in [
        ("leaves", Phase::Prepare),
        ("returns", Phase::Complete),
        ("born", Phase::Complete),
        ("dies", Phase::Release),
    ] {
        hook.until_asked_again(pod, phase, 2).await?;
    }
    let held = |pod: &Pod| pods::holders(pod).any(|finalizer| finalizer == hook.finalizer());
    for (pod, is_held) in [("leaves", true), ("returns", false), ("born", false), ("dies", true)] {
        let pod = scene.feed().get(pod).with_context(|| format!("pod {pod} went while its hook held it"))?;
        let is_dying = pod.metadata.deletion_timestamp.is_some();
        ensure!(held(&pod) == is_held && (is_dying || !pods::is_available(&pod)), "{}", pods::describe(&pod));
    }

    if over_grpc {
        let name = hook.name().to_owned();
        let registry = Registry::of(&scene).await?;
        registry.client()?.deregister(DeregisterRequest { name }).await?;
        registry.end().await?;
    } else {
        hook.delete().await?;
    }
    let is_gone = |pods: &[&Pod]| !pods.iter().any(|pod| pod.name_any() == "dies");
    scene.feed().until_pods("pod dies is gone", is_gone).await?;
    operator.await_operate("leaves").await?;
    operator.finish("leaves").await?;
    for pod in ["leaves", "returns", "born"] {
        operator.await_end(pod).await?;
        let nothing_left = |pod: &Pod| {
            let ours = [keys::AVAILABLE_CONDITIONS, keys::ASKED, keys::EVIDENCE];
            let texts = ours.iter().filter_map(|key| pod.annotations().get(*key));
            !held(pod) && !texts.into_iter().any(|text| text.contains(hook.name()))
        };
        scene.feed().until(pod, "nothing of the hook is left", nothing_left).await?;
    }
    for pod in ["leaves", "returns", "born", "dies"] {
        until_event(&scene, pod, "HookRemoved", &[hook.name()]).await?;
    }
    Ok(())
}
