//! Applications that register themselves: Podward only takes them out of service and puts them back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use podward_core::ConditionStatus;
use podward_e2e::{Fixture, Test};
use podward_registries::{Change, Instance};
use podward_support::pods;
use registry_servers::{
    EurekaServer, EurekaServerOptions, NacosServer, NacosServerOptions, ZooKeeperServer,
    ZooKeeperServerOptions,
};
use serde_json::{Value, json};

use super::bound::Bound;

/// The age of lists of Eureka.
const CACHE: Duration = Duration::from_secs(2);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_eureka_steer_holds_operations", eureka),
        Test::simulated("registry_nacos_steer_holds_operations", nacos),
        Test::simulated("registry_zookeeper_steer_holds_operations", zookeeper),
    ]
}

async fn eureka(fixture: Arc<Fixture>) -> Result<()> {
    // Each removal waits for the server's cache.
    let server = EurekaServer::start_with(EurekaServerOptions { response_cache: Some(CACHE) }).await?;
    let change = json!({"registry": {"connection": {"eureka": {"responseCacheSeconds": CACHE.as_secs()}}}});
    operations(fixture, "Eureka", server.url(), change).await
}

async fn nacos(fixture: Arc<Fixture>) -> Result<()> {
    let server = NacosServer::start(NacosServerOptions::default()).await?;
    operations(fixture, "Nacos", server.url(), json!({})).await
}

async fn zookeeper(fixture: Arc<Fixture>) -> Result<()> {
    let server = ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?;
    operations(fixture, "ZooKeeper", server.address(), json!({})).await
}

/// The pod is available when its application has registered it, out of service during an update and when it is deleted, and
/// nobody but the application removes its instance. `change` is merged into the spec of the binding.
async fn operations(
    fixture: Arc<Fixture>,
    kind: &'static str,
    address: String,
    mut change: Value,
) -> Result<()> {
    change["mode"] = json!("Steer");
    let bound = Bound::new(fixture.clone(), kind, vec![address], change).await?;
    bound.create("a").await?;
    let pod = fixture.feed().until("a", "it has an address", |pod| pod_ip(pod).is_some()).await?;
    let ip = pod_ip(&pod).context("a pod without an address")?;
    let containers = |pod: &Pod| pods::condition(pod, "ContainersReady") == Some(ConditionStatus::True);
    fixture.feed().until("a", "its containers are ready", containers).await?;
    let pod = fixture.feed().get("a").context("pod a is gone")?;
    ensure!(!pods::is_ready(&pod), "the pod is ready before its application has registered it");
    let instance = Instance {
        id: format!("a:{ip}:8080"),
        host: ip,
        port: 8080,
        cluster: String::new(),
        weight: 1.0,
        metadata: BTreeMap::from([("zone".to_owned(), "b".to_owned())]),
        in_service: true,
        may_return: false,
        version: None,
    };
    let written = bound.registry.write(&[Change::Register(bound.service.clone(), instance.clone())]).await;
    ensure!(written.iter().all(Result::is_ok), "{written:?}");
    fixture.until_available("a").await?;
    let present = async || {
        let found = bound.registry.instance(0, &bound.service, &instance).await?;
        let found = found.context("the instance of the application is gone")?;
        ensure!(found.owner().is_none() && found.metadata.contains_key("zone"), "{found:?}");
        Ok::<_, anyhow::Error>(found.in_service)
    };
    ensure!(present().await?, "the pod is available, and out of service");

    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    operator.await_operate("a").await?;
    ensure!(!present().await?, "the pod may be updated, and is in service");
    operator.finish("a").await?;
    operator.await_end("a").await?;
    ensure!(present().await?, "the pod is back, and out of service");

    // The answer comes when Podward has deleted the pod, or after a wait.
    drop(fixture.api().delete("a", &DeleteParams::default()).await);
    let is_going = |all: &[&Pod]| {
        !all.iter().any(|pod| pod.name_any() == "a" && pod.metadata.deletion_timestamp.is_none())
    };
    fixture.feed().until_pods("pod a is being deleted", is_going).await?;
    ensure!(!present().await?, "the pod is being deleted, and is in service");
    bound.end().await
}

fn pod_ip(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}
