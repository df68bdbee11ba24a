//! The DiscoveryBinding of the pods, and the server of its registry.

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use podward_api::DiscoveryBinding;
use podward_support::{ReachableServer, within};
use serde_json::json;

use super::bench::Bench;
use super::names::{BINDING, DEADLINE, NAMESPACE};
use super::pods::{SERVICE_LABEL, service};
use super::server::{RegistryName, RegistryServer};

const POLL: std::time::Duration = std::time::Duration::from_millis(50);

/// A binding, with a registry of its own.
pub(super) struct Bound<'a> {
    bench: &'a Bench<'a>,
    pub(super) server: RegistryServer,
    _reachable: ReachableServer,
    bindings: Api<DiscoveryBinding>,
    /// The services of the pods that it selects.
    services: Vec<String>,
}

impl<'a> Bound<'a> {
    /// Starts a registry. Its binding will select the pods of the first services, `pods` of them.
    pub(super) async fn start(bench: &'a Bench<'a>, name: RegistryName, pods: usize) -> Result<Bound<'a>> {
        let count = pods.div_ceil(bench.options.pods_of_service);
        Self::of_services(bench, name, (0..count).map(service).collect()).await
    }

    /// Starts a registry. Its binding will select the pods of `services`.
    pub(super) async fn of_services(
        bench: &'a Bench<'a>,
        name: RegistryName,
        services: Vec<String>,
    ) -> Result<Bound<'a>> {
        let server = RegistryServer::start(name).await?;
        let reachable = ReachableServer::on_loopback(bench.cluster, &server.address()).await?;
        let bindings = Api::namespaced(bench.cluster.client(), NAMESPACE);
        Ok(Bound { bench, server, _reachable: reachable, bindings, services })
    }

    /// Returns the number of pods that the binding selects.
    pub(super) fn pods(&self) -> usize {
        (self.services.len() * self.bench.options.pods_of_service).min(self.bench.options.pods)
    }

    /// Returns the services of the pods.
    pub(super) fn services(&self) -> &[String] {
        &self.services
    }

    /// Creates the binding, with comparisons at this interval.
    pub(super) async fn bind(&self, interval_seconds: u32) -> Result<()> {
        let object = serde_json::from_value(json!({
            "apiVersion": "podward.io/v1alpha1",
            "kind": "DiscoveryBinding",
            "metadata": {"name": BINDING},
            "spec": {
                "selector": {"matchExpressions": [
                    {"key": SERVICE_LABEL, "operator": "In", "values": self.services},
                ]},
                "registry": {"connection": self.server.connection()},
                "service": {"name": format!("${{pod.labels['{SERVICE_LABEL}']}}")},
                "port": 8080,
                "metadata": {"zone": "eu-1", "version": "1"},
                "drift": {"intervalSeconds": interval_seconds},
            },
        }));
        let object = object.context("describe the binding")?;
        self.bindings.create(&PostParams::default(), &object).await.context("create the binding")?;
        Ok(())
    }

    /// Deletes the binding, and waits until it is gone with its instances.
    pub(super) async fn end(self) -> Result<()> {
        self.bindings.delete(BINDING, &DeleteParams::default()).await.context("delete the binding")?;
        let gone = async {
            while self.bindings.get_opt(BINDING).await?.is_some() {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        within(DEADLINE, || "the binding to be gone".to_owned(), gone).await
    }
}
