//! The examples of hook systems with the real Podward: each registers and gets calls for a pod that is created,
//! operated on and deleted. The pod continues when the example answers DONE, and not before. The test acts as the
//! load balancer.

mod balancer;
mod hook_system;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DeleteParams};
use podward_core::{keys, keys::Stage};
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::json;

use hook_system::{Example, HookSystem};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("example_rust_server", |fixture| takes_part(fixture, Example::RustServer)),
        Test::node("example_python_server", |fixture| takes_part(fixture, Example::PythonServer)),
        Test::node("example_python_attached", |fixture| takes_part(fixture, Example::PythonAttached)),
    ]
}

async fn takes_part(fixture: Arc<Fixture>, example: Example) -> Result<()> {
    let system = HookSystem::start(&fixture, example).await?;
    let outcome = life_of_a_pod(&fixture, &system).await;
    let ended = system.end().await;
    outcome.with_context(|| system.diagnostics())?;
    ended
}

async fn life_of_a_pod(fixture: &Fixture, system: &HookSystem) -> Result<()> {
    let balancer = system.balancer();
    system.until_reachable().await?;

    // Created: not available before the balancer has added it.
    balancer.report(0, &[])?;
    let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, HookSystem::LABEL: fixture.namespace()});
    fixture.create_with("web", &labels, &json!({})).await?;
    let taken_in = balancer.until_generation(1).await?;
    let address = taken_in.values().next().context("no backend")?.clone();
    let pod = fixture.feed().get("web").context("there is no pod web")?;
    ensure!(taken_in.keys().eq([&pod.uid().unwrap_or_default()]), "{taken_in:?} is not the pod");
    ensure!(!pods::is_ready(&pod), "the pod is Ready, and the balancer has not taken it in");
    balancer.report(1, &[])?;
    let pod = fixture.until_available("web").await?;
    ensure!(pods::holders(&pod).count() == 1, "held by {:?}", pods::holders(&pod).collect::<Vec<_>>());

    // Operated on: not before its last connection is closed.
    balancer.report(1, &[(&address, 2)])?;
    let operator = fixture.operator("a", "restart");
    operator.begin("web").await?;
    ensure!(balancer.until_generation(2).await?.is_empty(), "the balancer is still to serve the pod");
    balancer.report(2, &[(&address, 2)])?;
    let waits = fixture.feed().until("web", "it says what it waits for", |pod| {
        told(pod).is_some_and(|told| told.contains("2 connections are left"))
    });
    let pod = waits.await?;
    ensure!(
        !operator.has(&pod, Stage::Operate),
        "the operation has its permission while connections are open"
    );
    balancer.report(2, &[])?;
    let pod = operator.await_operate("web").await?;
    ensure!(pods::holders(&pod).next().is_none(), "a consumer holds the pod: {}", pods::describe(&pod));
    let evidence = pod.annotations().get("podward.io/evidence").cloned().unwrap_or_default();
    ensure!(evidence.contains("PROVEN") && evidence.contains("no open connections"), "evidence: {evidence}");
    operator.finish("web").await?;
    ensure!(balancer.until_generation(3).await?.len() == 1, "the balancer is not to serve the pod again");
    balancer.report(3, &[])?;
    operator.await_end("web").await?;
    fixture.until_available("web").await?;

    // Deleted: rejected at first, and deleted by itself when the balancer has released it.
    let refused = fixture.api().delete("web", &DeleteParams::default()).await;
    let refused = refused.err().context("the delete was not held")?;
    let kube::Error::Api(status) = &refused else { return Err(refused).context("delete pod web") };
    ensure!(status.code == 429 && status.reason == "TooManyRequests", "{status:?}");
    ensure!(balancer.until_generation(4).await?.is_empty(), "the balancer is still to serve the pod");
    ensure!(fixture.feed().get("web").is_some(), "the pod went before the balancer had released it");
    balancer.report(4, &[])?;
    fixture.feed().until_pods("the pod is gone", |pods| pods.is_empty()).await?;
    Ok(())
}

/// Returns what the pod waits for.
fn told(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "podward.io/lifecycle")?.message.as_deref()
}
