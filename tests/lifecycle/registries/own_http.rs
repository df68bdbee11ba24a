//! Registries with an HTTP interface of their own: the test invents one.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use podward_api::DiscoveryBinding;
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_support::{ReachableServer, WAIT, pods, within};
use registry_servers::InventedServer;
use serde_json::{Value, json};

use super::bound::{ensure_evidence, labels};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_http_holds_operations", operations),
        Test::simulated("registry_http_with_a_stale_address_holds_operations", stale),
    ]
}

/// Returns a binding for a registry with the calls of [`InventedServer`] at `urls`.
fn binding(urls: &[String]) -> Result<DiscoveryBinding> {
    let at = "/v1/services/${service}/instances/${id}";
    let body = r#"{"id": "${id}", "host": "${host}", "port": "${port}", "status": "${inService}", "metadata": "${metadata}"}"#;
    let status = |method: &str| {
        json!({
            "method": method, "path": format!("{at}/status"), "body": r#"{"status": "${inService}"}"#,
            "statuses": {"gone": [404]},
        })
    };
    let binding = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "registry": {"connection": {
                "kind": "Http", "addresses": urls, "credentialsSecret": "registry",
                "http": {
                    "register": {"method": "PUT", "path": at, "body": body},
                    "deregister": {"method": "DELETE", "path": at, "statuses": {"gone": [404]}},
                    "putIntoService": status("PUT"),
                    "takeOutOfService": status("PUT"),
                    "read": {
                        "path": "/v1/services/${service}/instances", "instances": "/instances", "missing": [404],
                        "fields": {
                            "id": "/id", "host": "/host", "port": "/port", "inService": "/status", "metadata": "/metadata",
                        },
                    },
                    "list": {"path": "/v1/services", "services": "/services", "name": "/name"},
                },
            }},
            "service": {"name": "web"}, "port": 8080, "clientCacheSeconds": 0, "drift": {"intervalSeconds": 10},
        },
    });
    Ok(serde_json::from_value(binding)?)
}

/// Creates the binding, its Secret, and the right of the bridge to read it.
async fn create(fixture: &Fixture, urls: &[String]) -> Result<Vec<ReachableServer>> {
    let run = async |args: &[&str]| fixture.kubectl(args).await?.succeeded().map(drop);
    let token = format!("--from-literal=token={}", InventedServer::TOKEN);
    run(&["create", "secret", "generic", "registry", &token]).await?;
    run(&["create", "role", "reader", "--verb=get", "--resource=secrets", "--resource-name=registry"])
        .await?;
    let account = "--serviceaccount=podward-system:service-discovery-bridge";
    run(&["create", "rolebinding", "bridge-reads", "--role=reader", account]).await?;
    let mut servers = Vec::new();
    for url in urls {
        servers.push(ReachableServer::on_loopback(fixture.cluster(), url).await?);
    }
    let api: Api<DiscoveryBinding> = Api::namespaced(fixture.client(), fixture.namespace());
    api.create(&PostParams::default(), &binding(urls)?).await?;
    let attached = async {
        loop {
            let status = api.get("web").await?.status.unwrap_or_default();
            if status.conditions.iter().any(|it| it.type_ == "Synchronized" && it.status == "True") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || "the binding to be synchronized".to_owned(), attached).await?;
    Ok(servers)
}

/// Returns whether the server has the pod in service. `None` if it has no instance of it.
fn in_service(server: &InventedServer, pod: &str) -> Option<bool> {
    let stored = server.stored();
    let of_pod = stored.instances.values().find(|value| value["metadata"]["podward-pod"] == pod)?;
    of_pod["status"].as_bool()
}

/// Changes whose answers are errors, or are lost, are repeated; the pod's operations wait for them.
async fn operations(fixture: Arc<Fixture>) -> Result<()> {
    let server = InventedServer::default();
    let _reachable = create(&fixture, &[server.start(None).await?]).await?;
    let of_others =
        json!({"id": "vm-1", "host": "192.0.2.1", "port": 80, "status": true, "metadata": {"zone": "b"}});
    server.stored().instances.insert(("web".to_owned(), "vm-1".to_owned()), of_others.clone());
    // The first one is refused, the second is made and its answer is lost.
    server.stored().faults = vec![503, 502];
    fixture.create_with("a", &labels(), &json!({})).await?;
    fixture.until_available("a").await?;
    ensure!(
        in_service(&server, "a") == Some(true),
        "the pod is available, and the registry has {:?}",
        server.stored()
    );
    ensure!(server.stored().faults.is_empty(), "no change met the faults");

    let operator = fixture.operator("up", "update");
    server.stored().faults = vec![500];
    operator.begin("a").await?;
    let pod = operator.await_operate("a").await?;
    ensure!(in_service(&server, "a") == Some(false), "the pod may be updated, and is in service");
    // The registry can be read.
    ensure_evidence(&pod, &format!("{}.web", fixture.namespace()))?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    ensure!(in_service(&server, "a") == Some(true), "the pod is back, and not in service");

    // The answer comes when Podward has deleted the pod, or after a wait.
    drop(fixture.api().delete("a", &DeleteParams::default()).await);
    let is_going = |all: &[&Pod]| {
        !all.iter().any(|pod| pod.name_any() == "a" && pod.metadata.deletion_timestamp.is_none())
    };
    fixture.feed().until_pods("pod a is being deleted", is_going).await?;
    ensure!(in_service(&server, "a").is_none(), "the pod is being deleted, and is registered");
    let left: Vec<Value> = server.stored().instances.values().cloned().collect();
    ensure!(left == [of_others], "{left:?}");
    fixture.kubectl(&["delete", "discoverybinding", "web"]).await?.succeeded().map(drop)
}

/// One of two addresses shows an older state. Clients of it would still use the pod.
async fn stale(fixture: Arc<Fixture>) -> Result<()> {
    let (leader, follower) = (InventedServer::default(), InventedServer::default());
    let _reachable = create(&fixture, &[leader.start(None).await?, follower.start(None).await?]).await?;
    fixture.create_with("a", &labels(), &json!({})).await?;
    let replicate = async {
        while in_service(&leader, "a").is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    within(WAIT, || "the first address to have the pod".to_owned(), replicate).await?;
    let pod = fixture.feed().get("a");
    ensure!(
        !pod.is_some_and(|pod| pods::is_available(&pod)),
        "the pod is available, and one address lacks it"
    );
    follower.replicate(&leader);
    fixture.until_available("a").await?;

    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let explains = |pod: &Pod| pods::describe(pod).contains("not shown by every address");
    let pod = fixture.feed().until("a", "its condition names the addresses", explains).await?;
    ensure!(!operator.has(&pod, Stage::Operate), "the pod may be updated, and one address has it in service");
    ensure!(in_service(&leader, "a") == Some(false), "the removal was not written");
    follower.replicate(&leader);
    operator.await_operate("a").await?;
    // The way back needs both, too.
    operator.finish("a").await?;
    let back = async {
        while in_service(&leader, "a") != Some(true) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    within(WAIT, || "the first address to have the pod in service".to_owned(), back).await?;
    follower.replicate(&leader);
    operator.await_end("a").await?;
    let replicated = async {
        loop {
            follower.replicate(&leader);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = replicated => Ok(()),
        deleted = fixture.kubectl(&["delete", "discoverybinding", "web"]) => deleted?.succeeded().map(drop),
    }
}
