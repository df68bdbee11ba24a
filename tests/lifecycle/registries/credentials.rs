//! Credentials that a registry does not accept any more.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_credentials_that_are_replaced", replaced)]
}

/// A token is deleted at the registry: nothing is removed, and operations wait. The next token in the Secret is used at once.
async fn replaced(fixture: Arc<Fixture>) -> Result<()> {
    let root = "8f6a3f0e-1d1c-4a0e-9c55-0c7a1f1e2d3c";
    let server = ConsulServer::start(ConsulServerOptions { token: Some(root.to_owned()), tls: None }).await?;
    let first = server.create_token().await?;
    let run = async |args: &[&str]| fixture.kubectl(args).await?.succeeded().map(drop);
    run(&["create", "secret", "generic", "consul", &format!("--from-literal=token={}", first.secret)])
        .await?;
    run(&["create", "role", "reader", "--verb=get", "--resource=secrets", "--resource-name=consul"]).await?;
    let account = "--serviceaccount=podward-system:service-discovery-bridge";
    run(&["create", "rolebinding", "bridge-reads", "--role=reader", account]).await?;
    let change = json!({"registry": {"connection": {"credentialsSecret": "consul"}}});
    let bound = Bound::start(fixture.clone(), "Consul", vec![server.url()], Some(root), change).await?;
    bound.until_condition("Synchronized", "True").await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;

    server.delete_token(&first).await?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let explains = |pod: &Pod| pods::describe(pod).contains("check the credentials");
    let pod = fixture.feed().until("a", "its condition names the credentials", explains).await?;
    ensure!(!operator.has(&pod, Stage::Operate), "the pod may be updated, and the registry was not read");
    ensure!(bound.in_service("a").await? == Some(true), "the instance was changed");
    let shown = pods::describe(&pod) + &serde_json::to_string(&bound.api().get("web").await?)?;
    ensure!(!shown.contains(&first.secret), "the token is shown");

    let second = server.create_token().await?;
    let secrets: Api<Secret> = Api::namespaced(fixture.client(), fixture.namespace());
    let data = json!({"data": {"token": STANDARD.encode(&second.secret)}});
    let patched = secrets.patch("consul", &PatchParams::default(), &Patch::Merge(&data)).await;
    patched.context("replace the token")?;
    operator.await_operate("a").await?;
    ensure!(bound.in_service("a").await? == Some(false), "the pod may be updated, and is in service");
    operator.finish("a").await?;
    operator.await_end("a").await?;
    bound.until_condition("Reachable", "True").await?;
    bound.end().await
}
