//! What the service-discovery-bridge needs its rights for.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use podward_api::DiscoveryBinding;
use podward_e2e::Fixture;
use podward_support::{
    WAIT,
    demo::registry::{RegistryKind, RegistryServer},
    within,
};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);

/// A binding whose registry does not exist is rejected, and one that is accepted is deleted when its registry is clean.
pub(crate) async fn bindings_are_kept(fixture: &Arc<Fixture>) -> Result<()> {
    let _server = bind_to_consul(fixture, "accepted").await?;
    bind(fixture, "rejected", json!({"clusterRegistry": "there-is-none"})).await?;
    fixture.until_event("rejected", "BindingRejected").await?;
    let api: Api<DiscoveryBinding> = Api::namespaced(fixture.client(), fixture.namespace());
    for name in ["accepted", "rejected"] {
        api.delete(name, &DeleteParams::default()).await.with_context(|| format!("delete binding {name}"))?;
        let gone = async {
            while api.get_opt(name).await.context("read the binding")?.is_some() {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        within(WAIT, || format!("the end of binding {name}"), gone).await?;
    }
    Ok(())
}

/// Starts Consul, and binds the pods with the label `app=<name>` to it. Waits until the binding is accepted.
pub(crate) async fn bind_to_consul(fixture: &Fixture, name: &str) -> Result<RegistryServer> {
    let server = RegistryServer::start(fixture.cluster(), RegistryKind::Consul, Duration::ZERO).await?;
    let connection = json!({"connection": {"kind": "Consul", "addresses": server.addresses()}});
    bind(fixture, name, connection).await?;
    let api: Api<DiscoveryBinding> = Api::namespaced(fixture.client(), fixture.namespace());
    let accepted = async {
        while !is_kept(&api.get(name).await.context("read the binding")?) {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || "the binding to have a finalizer".to_owned(), accepted).await?;
    Ok(server)
}

fn is_kept(binding: &DiscoveryBinding) -> bool {
    binding.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
}

async fn bind(fixture: &Fixture, name: &str, registry: Value) -> Result<()> {
    let binding = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}}, "registry": registry,
            "service": {"name": format!("{}-{name}", fixture.namespace())}, "port": 80,
        },
    });
    let binding = serde_json::from_value(binding).context("describe a binding")?;
    let api: Api<DiscoveryBinding> = Api::namespaced(fixture.client(), fixture.namespace());
    api.create(&PostParams::default(), &binding)
        .await
        .map(drop)
        .with_context(|| format!("create binding {name}"))
}
