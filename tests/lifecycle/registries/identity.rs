//! Whose an instance is: several clusters on one registry, and pods with the name and the address of another pod.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_registries::{Change, Instance, Owner};
use podward_support::{WAIT, pods, within};
use registry_servers::{ConsulServer, ConsulServerOptions, NacosServer, NacosServerOptions};
use serde_json::{Value, json};

use super::bound::{Bound, labels};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_of_two_clusters", two_clusters),
        Test::simulated("registry_of_two_clusters_with_one_address", one_address),
        Test::simulated("registry_pods_with_one_name_in_consul", names_in_consul),
        Test::simulated("registry_pods_with_one_name_and_address_in_nacos", names_in_nacos),
    ]
}

/// Returns the instance that another cluster has registered for a pod with the same namespace, name and binding.
fn of_other_cluster(ours: &Instance, uid: &str) -> Result<Instance> {
    let owner = ours.owner().context("no mark")?;
    let mut metadata = ours.metadata.clone();
    Owner { cluster: "other".to_owned(), uid: uid.to_owned(), ..owner }.mark(&mut metadata);
    Ok(Instance { id: format!("{uid}.8080"), metadata, version: None, ..ours.clone() })
}

async fn write(bound: &Bound, change: Change) -> Result<()> {
    let written = bound.registry.write(std::slice::from_ref(&change)).await;
    ensure!(written.iter().all(Result::is_ok), "{change}: {written:?}");
    Ok(())
}

/// The instances of another cluster stay as they are, while ours are repaired, taken out of service and removed.
async fn two_clusters(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    let ours = bound.of_pod("a").await?.pop().context("no instance")?;
    // One of them has the address of our pod.
    let far = Instance { host: "192.0.2.9".to_owned(), ..of_other_cluster(&ours, "far")? };
    let theirs = [of_other_cluster(&ours, "near")?, far];
    for instance in &theirs {
        write(&bound, Change::Register(bound.service.clone(), instance.clone())).await?;
    }
    let is_theirs = |instance: &Instance| instance.owner().is_some_and(|owner| owner.cluster == "other");
    let of_them = |found: &[Instance]| {
        theirs.iter().all(|wanted| {
            found.iter().any(|it| {
                it.in_service
                    && it.id == wanted.id
                    && it.host == wanted.host
                    && it.metadata == wanted.metadata
            })
        })
    };
    let of_us = |found: &[Instance]| {
        found.iter().find(|instance| !is_theirs(instance)).map(|instance| instance.in_service)
    };
    // The repair shows that the registry was compared after they came.
    write(&bound, Change::Deregister(bound.service.clone(), ours.clone())).await?;
    let found = bound.until("ours is back", |found| of_us(found) == Some(true)).await?;
    ensure!(of_them(&found), "{found:?}");
    bound.until_condition("Synchronized", "True").await?;

    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    operator.await_operate("a").await?;
    let found = bound.instances(0).await?;
    ensure!(of_us(&found) == Some(false) && of_them(&found), "{found:?}");
    operator.finish("a").await?;
    operator.await_end("a").await?;
    // The answer comes when Podward has deleted the pod, or after a wait.
    drop(fixture.api().delete("a", &DeleteParams::default()).await);
    let found = bound.until("ours is gone", |found| of_us(found).is_none()).await?;
    ensure!(of_them(&found), "{found:?}");
    bound.delete().await?;
    let found = bound.instances(0).await?;
    ensure!(of_them(&found), "{found:?}");
    Ok(())
}

/// Nacos knows an instance by its address. The one that another cluster has registered at the address of our pod stays, and
/// whoever waits is told whose it is.
async fn one_address(fixture: Arc<Fixture>) -> Result<()> {
    let server = NacosServer::start(NacosServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Nacos", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    let ours = bound.of_pod("a").await?.pop().context("no instance")?;
    let theirs = of_other_cluster(&ours, "theirs")?;
    let takes_over = async {
        loop {
            // The bridge may register ours again before theirs comes: then theirs is refused.
            drop(write(&bound, Change::Deregister(bound.service.clone(), ours.clone())).await);
            if write(&bound, Change::Register(bound.service.clone(), theirs.clone())).await.is_ok() {
                return Ok(());
            }
        }
    };
    within(WAIT, || "the other cluster to have the address".to_owned(), takes_over).await?;
    bound.until_message("Synchronized", "False", "somebody else (cluster other").await?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let explains = |pod: &Pod| pods::describe(pod).contains("requests still arrive");
    let pod = fixture.feed().until("a", "its condition says whose the address is", explains).await?;
    ensure!(!operator.has(&pod, Stage::Operate), "the pod may be updated, and its address is in service");
    let stored = bound.instances(0).await?;
    ensure!(stored.len() == 1 && stored[0].owner() == theirs.owner() && stored[0].in_service, "{stored:?}");

    write(&bound, Change::Deregister(bound.service.clone(), theirs)).await?;
    operator.await_operate("a").await?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    ensure!(bound.in_service("a").await? == Some(true), "the pod is back, and not in service");
    bound.end().await
}

async fn names_in_consul(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    names(fixture, "Consul", server.url()).await
}

async fn names_in_nacos(fixture: Arc<Fixture>) -> Result<()> {
    let server = NacosServer::start(NacosServerOptions::default()).await?;
    names(fixture, "Nacos", server.url()).await
}

/// A pod is deleted and made again with the same name and the same address, as a StatefulSet does: the registry has the
/// instance of the new pod, and only that.
async fn names(fixture: Arc<Fixture>, kind: &'static str, url: String) -> Result<()> {
    let bound = Bound::new(fixture.clone(), kind, vec![url], json!({})).await?;
    let nodes: Api<Node> = Api::all(fixture.client());
    let nodes = nodes.list(&ListParams::default()).await?.items;
    let mut names = nodes.iter().map(ResourceExt::name_any);
    let node = names.find(|name| name.starts_with("simulated-")).context("no simulated node")?;
    let free = json!({"app": "web"});
    let first = create(&fixture, &node, &free).await?;
    let is_of = |found: &[Instance], pod: &Pod| {
        let uid = pod.uid();
        found.len() == 1 && found[0].in_service && found[0].owner().map(|owner| owner.uid) == uid
    };
    let of_first = bound.until("the first pod is in service", |found| is_of(found, &first)).await?;
    // Nobody waits for its removal.
    let at_once = DeleteParams::default().grace_period(0);
    fixture.api().delete("web-0", &at_once).await?;
    let second = create(&fixture, &node, &free).await?;
    let of_second = bound.until("only the second pod is in service", |found| is_of(found, &second)).await?;
    ensure!(of_first[0].host == of_second[0].host, "the pods have different addresses");
    fixture.api().delete("web-0", &at_once).await?;

    // Podward holds the deletion of this one.
    let third = create(&fixture, &node, &labels()).await?;
    fixture.until_available("web-0").await?;
    ensure!(is_of(&bound.instances(0).await?, &third), "the third pod is available, and not alone");
    drop(fixture.api().delete("web-0", &DeleteParams::default()).await);
    let fourth = create(&fixture, &node, &labels()).await?;
    fixture
        .feed()
        .until("web-0", "it is available", |pod| pod.uid() == fourth.uid() && pods::is_available(pod))
        .await?;
    let found = bound.instances(0).await?;
    ensure!(is_of(&found, &fourth), "the fourth pod is available, and the registry shows {found:?}");
    // Also after a comparison of all.
    bound.until_condition("Synchronized", "True").await?;
    ensure!(is_of(&bound.instances(0).await?, &fourth), "the fourth pod is not alone");
    bound.end().await
}

/// Creates the pod web-0 with the address of the node, as soon as its predecessor is gone.
async fn create(fixture: &Fixture, node: &str, labels: &Value) -> Result<Pod> {
    let mut pod = fixture.pod("web-0", labels, &json!({}))?;
    let spec = pod.spec.as_mut().context("a pod without a spec")?;
    spec.host_network = Some(true);
    spec.node_name = Some(node.to_owned());
    let created = async {
        loop {
            match fixture.api().create(&PostParams::default(), &pod).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                result => return result.context("make pod web-0"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || "the former pod to be gone".to_owned(), created).await
}
