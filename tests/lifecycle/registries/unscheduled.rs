//! Pods that have no address yet.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PodSchedulingGate;
use kube::api::PostParams;
use podward_e2e::{Fixture, Test};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::{Bound, labels};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_pod_without_address_is_not_waited_for", unscheduled)]
}

/// No client can know a pod that has no address: operations on it do not wait for caches of clients.
async fn unscheduled(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    // Longer than a test waits.
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({"clientCacheSeconds": 300}));
    let bound = bound.await?;
    let mut pod = fixture.pod("a", &labels(), &json!({}))?;
    let gate = PodSchedulingGate { name: "podward.io/test".to_owned() };
    pod.spec.as_mut().context("a pod without a spec")?.scheduling_gates = Some(vec![gate]);
    fixture.api().create(&PostParams::default(), &pod).await.context("create a pod that is not scheduled")?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    operator.await_operate("a").await?;
    ensure!(bound.in_service("a").await?.is_none(), "a pod without an address is registered");
    operator.finish("a").await?;
    fixture.patch("a", json!({"spec": {"schedulingGates": null}})).await?;
    operator.await_end("a").await?;
    fixture.until_available("a").await?;
    ensure!(bound.in_service("a").await? == Some(true), "an available pod is not in service");
    bound.end().await
}
