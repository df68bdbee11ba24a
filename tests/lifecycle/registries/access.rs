//! Who may write bindings, and what is refused.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use podward_api::ClusterRegistry;
use podward_e2e::metrics::{ExposedMetrics, documented};
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, WAIT, pods, within};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::{Bound, connection};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_credentials_need_the_right_to_read_them", credentials),
        Test::simulated("registry_of_the_cluster_limits_its_users", cluster_registry),
    ]
}

/// A connection sends its Secret to its addresses, so its writer needs the right to get the Secret.
async fn credentials(fixture: Arc<Fixture>) -> Result<()> {
    let token = "8f6a3f0e-1d1c-4a0e-9c55-0c7a1f1e2d3c";
    let server =
        ConsulServer::start(ConsulServerOptions { token: Some(token.to_owned()), tls: None }).await?;
    let bound = Bound::start(fixture.clone(), "Consul", vec![server.url()], Some(token), json!({})).await?;
    let run = async |args: &[&str]| {
        let done = fixture.kubectl(args).await?;
        done.succeeded().map(drop)
    };
    let secret = format!("--from-literal=token={token}");
    run(&["create", "secret", "generic", "consul", &secret]).await?;
    run(&["create", "role", "jane", "--verb=get,patch", "--resource=discoverybindings.podward.io"]).await?;
    run(&["create", "rolebinding", "jane", "--role=jane", "--user=jane"]).await?;
    let patch = json!({"spec": {"registry": {"connection": {"credentialsSecret": "consul"}}}}).to_string();
    let as_jane = ["--as=jane", "patch", "discoverybinding", "web", "--type=merge", "--patch", &patch];
    let denied = fixture.kubectl(&as_jane).await?;
    ensure!(denied.code != Some(0) && denied.said.contains("jane may not get Secret"), "{}", denied.said);
    run(&["create", "role", "reader", "--verb=get", "--resource=secrets", "--resource-name=consul"]).await?;
    run(&["create", "rolebinding", "jane-reads", "--role=reader", "--user=jane"]).await?;
    let allowed = async {
        // The former answer is used for ten seconds.
        while fixture.kubectl(&as_jane).await?.code != Some(0) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    };
    within(WAIT, || "jane may write the connection".to_owned(), allowed).await?;
    let message = bound.until_condition("Accepted", "False").await?;
    ensure!(message.contains("allow it with a Role"), "{message}");
    let account = "--serviceaccount=podward-system:service-discovery-bridge";
    run(&["create", "rolebinding", "bridge-reads", "--role=reader", account]).await?;
    bound.until_condition("Accepted", "True").await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    ensure!(bound.in_service("a").await? == Some(true), "the pod is available, but not in the registry");
    let status = serde_json::to_string(&bound.api().get("web").await?)?;
    ensure!(!status.contains(token), "the binding shows the token");

    let invalid =
        ["patch", "discoverybinding", "web", "--type=merge", "--patch", r#"{"spec": {"weight": "many"}}"#];
    let denied = fixture.kubectl(&invalid).await?;
    ensure!(denied.code != Some(0) && denied.said.contains("spec.weight"), "{}", denied.said);
    metrics(&fixture).await?;
    bound.end().await
}

/// The metrics of the bridge are those in the documentation, and no watch fails.
async fn metrics(fixture: &Fixture) -> Result<()> {
    let mut exposed = ExposedMetrics::default();
    for bridge in fixture.podward()?.services(ServiceKind::ServiceDiscoveryBridge) {
        let text = bridge.metrics().await?;
        // The cluster has no OpenKruise, unless another test has installed its resources.
        let failing =
            text.lines().find(|line| line.starts_with("podward_watch_failing{") && line.ends_with(" 1"));
        ensure!(failing.is_none(), "{failing:?}");
        exposed.add(&text)?;
    }
    let is_ours = |name: &str| name.starts_with("podward_discovery_");
    let table = documented()?;
    for metric in table.values().filter(|metric| is_ours(&metric.name)) {
        ensure!(
            exposed.kinds.get(&metric.name).is_some_and(|kind| kind == metric.kind),
            "{metric:?} is not exposed"
        );
        for labels in exposed.labels.get(&metric.name).into_iter().flatten() {
            ensure!(*labels == metric.labels, "{} has the labels {labels:?}", metric.name);
        }
    }
    for name in exposed.kinds.keys().filter(|name| is_ours(name)) {
        ensure!(table.contains_key(name), "{name} is not documented");
    }
    Ok(())
}

async fn cluster_registry(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let name = fixture.namespace().to_owned();
    let registries: Api<ClusterRegistry> = Api::all(fixture.client());
    let registry = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": name},
        "spec": {
            "connection": connection("Consul", &[server.url()]),
            "namespaces": [name], "services": ["${namespace}-*"],
        },
    });
    registries
        .create(&PostParams::default(), &serde_json::from_value(registry)?)
        .await
        .context("create the registry")?;
    let change = json!({"registry": {"connection": null, "clusterRegistry": name}});
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], change).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    ensure!(bound.in_service("a").await? == Some(true), "the pod is available, but not in the registry");
    let narrower = json!({"spec": {"services": ["other"]}});
    registries.patch(&name, &PatchParams::default(), &Patch::Merge(&narrower)).await?;
    bound.create("b").await?;
    let explains =
        |pod: &k8s_openapi::api::core::v1::Pod| pods::describe(pod).contains("does not allow the service");
    fixture.feed().until("b", "its condition names the limit", explains).await?;
    ensure!(bound.in_service("b").await?.is_none(), "b is registered under a name that is not allowed");
    let wider = json!({"spec": {"services": []}});
    registries.patch(&name, &PatchParams::default(), &Patch::Merge(&wider)).await?;
    fixture.until_available("b").await?;
    bound.end().await?;
    registries.delete(&name, &DeleteParams::default()).await.context("delete the registry")?;
    Ok(())
}
