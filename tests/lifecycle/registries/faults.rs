//! Registries and replicas that fail.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, pods};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_down_holds_pods", down),
        Test::simulated("registry_address_that_does_not_answer_holds_removals", one_address_down),
        Test::simulated_alone("registry_bridge_killed_during_an_operation", killed),
    ]
}

async fn down(fixture: Arc<Fixture>) -> Result<()> {
    let mut server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    server.process.stop().await?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    bound.create("b").await?;
    let message = bound.until_condition("Reachable", "False").await?;
    ensure!(message.contains("127.0.0.1"), "the message does not name the address: {message}");
    let explains = |pod: &k8s_openapi::api::core::v1::Pod| pods::describe(pod).contains("127.0.0.1");
    fixture.feed().until("a", "its condition names the registry", explains).await?;
    let pod = fixture.feed().get("a").context("pod a is gone")?;
    ensure!(!operator.has(&pod, podward_core::keys::Stage::Operate), "{}", pods::describe(&pod));
    // Its container runs, and only the registry is missing.
    let runs = |pod: &k8s_openapi::api::core::v1::Pod| {
        pods::container(pod).is_some_and(|status| status.ready) && explains(pod)
    };
    let pod = fixture.feed().until("b", "it runs, and its condition names the registry", runs).await?;
    ensure!(!pods::is_available(&pod), "b is not registered: {}", pods::describe(&pod));
    server.process.restart_empty().await?;
    operator.await_operate("a").await?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    fixture.until_available("b").await?;
    bound.until_condition("Reachable", "True").await?;
    bound.end().await
}

/// What one of several addresses shows is not known, so a removal waits for it, and an addition does not.
async fn one_address_down(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let mut second = ConsulServer::start(ConsulServerOptions::default()).await?;
    let mut bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    bound.reach(&second.url()).await?;
    let addresses = [server.url(), second.url()];
    second.process.stop().await?;
    bound.patch(json!({"spec": {"registry": {"connection": {"addresses": addresses}}}})).await?;
    bound.until_condition("Reachable", "False").await?;
    bound.create("b").await?;
    fixture.until_available("b").await?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let names = |pod: &k8s_openapi::api::core::v1::Pod| pods::describe(pod).contains(&second.url()[7..]);
    fixture.feed().until("a", "its condition names the address", names).await?;
    let pod = fixture.feed().get("a").context("pod a is gone")?;
    ensure!(!operator.has(&pod, podward_core::keys::Stage::Operate), "{}", pods::describe(&pod));
    bound.patch(json!({"spec": {"registry": {"connection": {"addresses": [server.url()]}}}})).await?;
    operator.await_operate("a").await?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    bound.end().await
}

async fn killed(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound =
        Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({"clientCacheSeconds": 2})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    let status = bound.api().get("web").await?.status.unwrap_or_default();
    let keeper = status.replica.context("the status names no replica")?;
    let bridges = fixture.podward()?.services(ServiceKind::ServiceDiscoveryBridge);
    let keeps = bridges.iter().find(|bridge| bridge.name() == keeper);
    let keeps = keeps.with_context(|| format!("no replica is called {keeper}"))?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    bound
        .until("the pod is out of service", |found| found.iter().all(|instance| !instance.in_service))
        .await?;
    keeps.kill().await?;
    // The other replica takes over when the Lease has expired.
    let begin = tokio::time::Instant::now();
    operator.await_operate("a").await?;
    ensure!(begin.elapsed() < Duration::from_secs(30), "the other replica took {:?}", begin.elapsed());
    keeps.start().await?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    ensure!(bound.in_service("a").await? == Some(true), "the pod is back, but not in the registry");
    bound.end().await
}
