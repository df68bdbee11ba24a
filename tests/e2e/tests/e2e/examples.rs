//! The examples of hook systems against the real Podward: each registers, is asked about a pod that is born, operated on and deleted,
//! and the pod goes on when it says so, and not before. The test plays the load balancer.

mod balancer;
mod hook_system;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DeleteParams};
use podward_core::{keys, keys::Stage};
use podward_e2e::{Scene, Test};
use podward_support::pods;
use serde_json::json;

use hook_system::{Example, HookSystem};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("example_rust_server", |scene| takes_part(scene, Example::RustServer)),
        Test::node("example_python_server", |scene| takes_part(scene, Example::PythonServer)),
        Test::node("example_python_attached", |scene| takes_part(scene, Example::PythonAttached)),
    ]
}

async fn takes_part(scene: Arc<Scene>, example: Example) -> Result<()> {
    let system = HookSystem::start(&scene, example).await?;
    let outcome = life_of_a_pod(&scene, &system).await;
    let ended = system.end().await;
    outcome.with_context(|| system.last_words())?;
    ended
}

async fn life_of_a_pod(scene: &Scene, system: &HookSystem) -> Result<()> {
    let balancer = system.balancer();
    system.until_reachable().await?;

    // Born: not available before the balancer has taken it in.
    balancer.report(0, &[])?;
    let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, HookSystem::LABEL: scene.namespace()});
    scene.create_with("web", &labels, &json!({})).await?;
    let taken_in = balancer.until_generation(1).await?;
    let address = taken_in.values().next().context("no backend")?.clone();
    let pod = scene.feed().get("web").context("there is no pod web")?;
    ensure!(taken_in.keys().eq([&pod.uid().unwrap_or_default()]), "{taken_in:?} is not the pod");
    ensure!(!pods::is_ready(&pod), "the pod is Ready, and the balancer has not taken it in");
    balancer.report(1, &[])?;
    let pod = scene.until_available("web").await?;
    ensure!(pods::holders(&pod).count() == 1, "held by {:?}", pods::holders(&pod).collect::<Vec<_>>());

    // Operated on: not before its last connection is gone.
    balancer.report(1, &[(&address, 2)])?;
    let operator = scene.operator("a", "restart");
    operator.begin("web").await?;
    ensure!(balancer.until_generation(2).await?.is_empty(), "the balancer is still to serve the pod");
    balancer.report(2, &[(&address, 2)])?;
    let waits = scene.feed().until("web", "it says what it waits for", |pod| {
        told(pod).is_some_and(|told| told.contains("2 connections are left"))
    });
    let pod = waits.await?;
    ensure!(
        !operator.has(&pod, Stage::Operate),
        "the operation has its permission while connections are open"
    );
    balancer.report(2, &[])?;
    let pod = operator.await_operate("web").await?;
    ensure!(pods::holders(&pod).next().is_none(), "somebody holds the pod: {}", pods::describe(&pod));
    let evidence = pod.annotations().get("podward.io/evidence").cloned().unwrap_or_default();
    ensure!(evidence.contains("PROVEN") && evidence.contains("no connection left"), "evidence: {evidence}");
    operator.finish("web").await?;
    ensure!(balancer.until_generation(3).await?.len() == 1, "the balancer is not to serve the pod again");
    balancer.report(3, &[])?;
    operator.await_end("web").await?;
    scene.until_available("web").await?;

    // Deleted: refused at first, and gone by itself when the balancer has let go.
    let refused = scene.api().delete("web", &DeleteParams::default()).await;
    let refused = refused.err().context("the delete was not held")?;
    let kube::Error::Api(status) = &refused else { return Err(refused).context("delete pod web") };
    ensure!(status.code == 429 && status.reason == "TooManyRequests", "{status:?}");
    ensure!(balancer.until_generation(4).await?.is_empty(), "the balancer is still to serve the pod");
    ensure!(scene.feed().get("web").is_some(), "the pod went before the balancer had let go of it");
    balancer.report(4, &[])?;
    scene.feed().until_pods("the pod is gone", |pods| pods.is_empty()).await?;
    Ok(())
}

/// What the pod says that it waits for.
fn told(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "podward.io/lifecycle")?.message.as_deref()
}
