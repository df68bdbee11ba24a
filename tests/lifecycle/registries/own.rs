//! Pods that Podward registers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::DeleteParams;
use podward_e2e::{Fixture, Test};
use podward_registries::{Change, Instance};
use podward_support::pods;
use registry_servers::{
    ConsulServer, ConsulServerOptions, EtcdServer, EurekaServer, NacosServer, NacosServerOptions,
    ZooKeeperServer, ZooKeeperServerOptions,
};
use serde_json::json;

use super::bound::{Bound, DUBBO};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_consul_holds_operations", consul),
        Test::simulated("registry_etcd_of_three_holds_operations", etcd),
        Test::simulated("registry_eureka_holds_operations", eureka),
        Test::simulated("registry_nacos_holds_operations", nacos),
        Test::simulated("registry_zookeeper_of_three_holds_operations", zookeeper),
        Test::simulated("registry_dubbo_holds_operations", dubbo),
        Test::simulated("registry_pods_that_have_not_opted_in", not_opted_in),
    ]
}

async fn consul(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    operations(fixture, "Consul", vec![server.url()], Some(false)).await
}

async fn etcd(fixture: Arc<Fixture>) -> Result<()> {
    let servers = EtcdServer::start_three().await?;
    let addresses: Vec<String> = servers.iter().map(EtcdServer::address).collect();
    operations(fixture, "Etcd", addresses, None).await
}

async fn eureka(fixture: Arc<Fixture>) -> Result<()> {
    let server = EurekaServer::start().await?;
    operations(fixture, "Eureka", vec![server.url()], Some(false)).await
}

async fn nacos(fixture: Arc<Fixture>) -> Result<()> {
    let server = NacosServer::start(NacosServerOptions::default()).await?;
    operations(fixture, "Nacos", vec![server.url()], Some(false)).await
}

async fn zookeeper(fixture: Arc<Fixture>) -> Result<()> {
    let servers = ZooKeeperServer::start_three().await?;
    let addresses: Vec<String> = servers.iter().map(ZooKeeperServer::address).collect();
    operations(fixture, "ZooKeeper", addresses, Some(false)).await
}

async fn dubbo(fixture: Arc<Fixture>) -> Result<()> {
    let server = ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?;
    operations(fixture, DUBBO, vec![server.address()], Some(false)).await
}

/// Podward registers pods when they become available, takes them out before an update, and deregisters them before they
/// are deleted. `out` is what the registry shows of a pod that is being updated.
async fn operations(
    fixture: Arc<Fixture>,
    kind: &'static str,
    addresses: Vec<String>,
    out: Option<bool>,
) -> Result<()> {
    let bound = Bound::new(fixture.clone(), kind, addresses.clone(), json!({})).await?;
    // An instance of somebody else in the same service.
    let foreign = Instance {
        id: "vm-1".to_owned(),
        host: "192.0.2.1".to_owned(),
        port: 9000,
        cluster: String::new(),
        weight: 1.0,
        metadata: [("zone".to_owned(), "b".to_owned())].into(),
        in_service: true,
        may_return: false,
        version: None,
    };
    let written = bound.registry.write(&[Change::Register(bound.service.clone(), foreign.clone())]).await;
    ensure!(written.iter().all(Result::is_ok), "{written:?}");
    for pod in ["a", "b"] {
        bound.create(pod).await?;
    }
    for pod in ["a", "b"] {
        fixture.until_available(pod).await?;
        let found = bound.registry.instances(addresses.len() - 1, &bound.service).await;
        // Lists of Eureka are older than its instances.
        if kind != "Eureka" {
            let found = found?;
            let of_pod = found.iter().find(|it| it.metadata.get("pod").is_some_and(|name| name == pod));
            ensure!(of_pod.is_some_and(|instance| instance.in_service), "{pod} is available, but {found:?}");
        }
    }
    bound
        .until("both pods are in service", |found| found.iter().filter(|it| it.in_service).count() == 3)
        .await?;

    let [of_a, of_b] = [bound.of_pod("a").await?, bound.of_pod("b").await?].map(|mut found| found.pop());
    let (of_a, of_b) = (of_a.context("pod a has no instance")?, of_b.context("pod b has no instance")?);

    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let pod = operator.await_operate("a").await?;
    let present = present_state(&bound, &of_a).await?;
    ensure!(present == out, "the pod may be updated, and the registry shows {present:?} instead of {out:?}");
    bound.ensure_evidence(&pod)?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    let present = present_state(&bound, &of_a).await?;
    ensure!(present == Some(true), "the pod is back, and the registry shows {present:?}");

    // The answer comes when Podward has deleted the pod (404 if the pod is gone by then), or after a wait (429).
    let answer = fixture.api().delete("b", &DeleteParams::default()).await;
    let is_accepted = match &answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => [404, 429].contains(&status.code),
        Err(_) => false,
    };
    ensure!(is_accepted, "{answer:?}");
    // When Podward deletes the pod, the registry does not have it any more.
    let is_dying = |pod: &k8s_openapi::api::core::v1::Pod| pod.metadata.deletion_timestamp.is_some();
    let is_gone = |all: &[&k8s_openapi::api::core::v1::Pod]| {
        !all.iter().any(|pod| pod.name_any() == "b" && !is_dying(pod))
    };
    fixture.feed().until_pods("pod b is being deleted", is_gone).await?;
    let present = present_state(&bound, &of_b).await?;
    ensure!(present.is_none(), "the pod is being deleted, and the registry shows {present:?}");

    let left =
        bound.until("the other pod and the foreign instance are left", |found| found.len() == 2).await?;
    ensure!(left.iter().any(|instance| instance.host == foreign.host && instance.in_service), "{left:?}");
    bound.end().await
}

/// Returns what the addresses show of an instance at present, not what their lists show: whether one has it in service, or
/// `None` if none has it.
async fn present_state(bound: &Bound, wanted: &Instance) -> Result<Option<bool>> {
    let mut shown = None;
    for address in 0..bound.registry.addresses().len() {
        let found = bound.registry.instance(address, &bound.service, wanted).await?;
        let ours = found.filter(|instance| instance.owner() == wanted.owner());
        shown = shown.max(ours.map(|instance| instance.in_service));
    }
    Ok(shown)
}

/// The registry follows the readiness of pods that have not opted in.
async fn not_opted_in(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    fixture.create_with("free", &json!({"app": "web"}), &json!({})).await?;
    fixture.feed().until("free", "it is Ready", pods::is_ready).await?;
    bound.until("the pod is in service", |found| found.len() == 1 && found[0].in_service).await?;
    fixture.api().delete("free", &DeleteParams::default().grace_period(0)).await?;
    bound.until("the pod is gone", <[Instance]>::is_empty).await?;
    bound.end().await
}
