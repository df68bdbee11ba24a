//! A DiscoveryBinding of a test, and what its registry shows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use podward_api::DiscoveryBinding;
use podward_e2e::Fixture;
use podward_registries::{
    Connection, Consul, ConsulOptions, Credentials, DirectDialer, Etcd, EtcdOptions, Eureka, EurekaOptions,
    Instance, Nacos, Registry, ServiceKey, ZooKeeper, ZooKeeperLayout, ZooKeeperOptions,
};
use podward_support::{ReachableServer, WAIT, within};
use serde_json::{Value, json};

use crate::hooks::reports::evidence;
use crate::merge::merge;

/// The interval of reads of a registry.
const POLL: Duration = Duration::from_millis(20);
/// The name of the node in Consul's catalog, as that of the bridge.
const NODE: &str = "podward";
/// ZooKeeper with the layout of Dubbo 2.
pub(super) const DUBBO: &str = "Dubbo";

/// A DiscoveryBinding of the namespace of a test for pods with the label `app: <its name>`. Its service is
/// `<namespace>-<its name>`. The name is `web` unless a test needs several.
pub(super) struct Bound {
    fixture: Arc<Fixture>,
    name: &'static str,
    servers: Vec<ReachableServer>,
    pub(super) registry: Arc<dyn Registry>,
    pub(super) service: ServiceKey,
}

/// The labels of a pod that has opted in and that the binding `web` selects.
pub(super) fn labels() -> Value {
    labels_of("web")
}

fn labels_of(binding: &str) -> Value {
    json!({podward_core::keys::CONTROL_LABEL: podward_core::keys::CONTROL_VALUE, "app": binding})
}

/// Checks that the hook of a binding has observed the release of the pod.
pub(super) fn ensure_evidence(pod: &Pod, hook: &str) -> Result<()> {
    let evidence = evidence(pod, hook);
    let is_observed = ["PROVEN", "BOUNDED"].iter().any(|level| evidence["level"] == *level);
    ensure!(is_observed, "the evidence of {hook}: {evidence}, of all: {:?}", pod.annotations());
    Ok(())
}

/// Returns a client of its own for a registry.
pub(super) fn client(kind: &str, addresses: &[String], token: Option<&str>) -> Result<Arc<dyn Registry>> {
    let connection = Connection {
        addresses: addresses.to_vec(),
        tls: None,
        credentials: token
            .map_or(Credentials::Anonymous, |token| Credentials::Token(token.to_owned().into())),
        timeout: Duration::from_secs(10),
        dialer: Arc::new(DirectDialer),
    };
    let registry: Result<Arc<dyn Registry>, String> = match kind {
        "Consul" => {
            let options = ConsulOptions { node: NODE.to_owned(), ..ConsulOptions::default() };
            Consul::new(&connection, options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        "Etcd" => {
            let options = EtcdOptions { prefix: "/services".to_owned(), ..EtcdOptions::default() };
            Etcd::new(&connection, &options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        "Eureka" => Eureka::new(&connection, EurekaOptions::default())
            .map(|client| Arc::new(client) as Arc<dyn Registry>),
        "Nacos" => Nacos::new(&connection).map(|client| Arc::new(client) as Arc<dyn Registry>),
        "ZooKeeper" => ZooKeeper::new(&connection, &ZooKeeperOptions::default())
            .map(|client| Arc::new(client) as Arc<dyn Registry>),
        DUBBO => {
            let layout = ZooKeeperLayout::DubboInterfaces { protocol: "dubbo".to_owned() };
            ZooKeeper::new(&connection, &ZooKeeperOptions { layout, base: String::new() })
                .map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        other => bail!("no registry {other}"),
    };
    registry.map_err(anyhow::Error::msg)
}

/// Returns a connection for a binding.
pub(super) fn connection(kind: &str, addresses: &[String]) -> Value {
    let mut connection = json!({"kind": kind, "addresses": addresses});
    if kind == DUBBO {
        connection["kind"] = json!("ZooKeeper");
        connection["zookeeper"] = json!({"layout": "DubboInterfaces"});
    }
    if kind == "Etcd" {
        connection["etcd"] = json!({"prefix": "/services"});
    }
    connection
}

impl Bound {
    /// Creates a binding, and waits until its hook is attached: pods that are created earlier become available without it.
    /// `change` is merged into its spec. Clients keep what they have read for no time.
    pub(super) async fn new(
        fixture: Arc<Fixture>,
        kind: &'static str,
        addresses: Vec<String>,
        change: Value,
    ) -> Result<Self> {
        let bound = Self::start(fixture, kind, addresses, None, change).await?;
        bound.until_condition("Synchronized", "True").await?;
        Ok(bound)
    }

    /// As [`new`](Self::new), without the wait. The test itself uses the registry with `token`.
    pub(super) async fn start(
        fixture: Arc<Fixture>,
        kind: &'static str,
        addresses: Vec<String>,
        token: Option<&str>,
        change: Value,
    ) -> Result<Self> {
        Self::start_named(fixture, "web", kind, addresses, token, change).await
    }

    /// As [`start`](Self::start), with another name.
    pub(super) async fn start_named(
        fixture: Arc<Fixture>,
        name: &'static str,
        kind: &'static str,
        addresses: Vec<String>,
        token: Option<&str>,
        change: Value,
    ) -> Result<Self> {
        let mut object = json!({
            "apiVersion": "podward.io/v1alpha1",
            "kind": "DiscoveryBinding",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "registry": {"connection": connection(kind, &addresses)},
                "service": {"name": format!("${{pod.namespace}}-{name}")},
                "port": 8080,
                "metadata": {"pod": "${pod.name}"},
                "clientCacheSeconds": 0,
                "drift": {"intervalSeconds": 10},
            },
        });
        merge(&mut object["spec"], change);
        let mut servers = Vec::new();
        for address in &addresses {
            servers.push(ReachableServer::on_loopback(fixture.cluster(), address).await?);
        }
        let bound = Self {
            servers,
            registry: client(kind, &addresses, token)?,
            service: ServiceKey { name: format!("{}-{name}", fixture.namespace()), ..ServiceKey::default() },
            fixture,
            name,
        };
        let object = serde_json::from_value(object).context("describe the binding")?;
        bound.api().create(&PostParams::default(), &object).await.context("create the binding")?;
        Ok(bound)
    }

    pub(super) fn api(&self) -> Api<DiscoveryBinding> {
        Api::namespaced(self.fixture.client(), self.fixture.namespace())
    }

    /// Makes another server reachable for the services, until the binding is dropped.
    pub(super) async fn reach(&mut self, address: &str) -> Result<()> {
        self.servers.push(ReachableServer::on_loopback(self.fixture.cluster(), address).await?);
        Ok(())
    }

    /// Creates a pod that the binding selects.
    pub(super) async fn create(&self, name: &str) -> Result<()> {
        self.fixture.create_with(name, &labels_of(self.name), &json!({})).await.map(drop)
    }

    /// Returns the instances at an address.
    pub(super) async fn instances(&self, address: usize) -> Result<Vec<Instance>> {
        self.registry.instances(address, &self.service).await.context("read the registry")
    }

    /// Returns the instances of a pod at the first address.
    pub(super) async fn of_pod(&self, pod: &str) -> Result<Vec<Instance>> {
        let found = self.instances(0).await?;
        Ok(found.into_iter().filter(|it| it.owner().is_some_and(|owner| owner.pod == pod)).collect())
    }

    /// Returns whether the first address shows the pod in service: `None` if it shows no instance.
    pub(super) async fn in_service(&self, pod: &str) -> Result<Option<bool>> {
        let found = self.of_pod(pod).await?;
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.in_service)),
            several => bail!("pod {pod} has {} instances: {several:?}", several.len()),
        }
    }

    /// Waits until the instances at the first address fit.
    pub(super) async fn until(
        &self,
        what: &str,
        test: impl Fn(&[Instance]) -> bool,
    ) -> Result<Vec<Instance>> {
        let read = async {
            loop {
                if let Ok(found) = self.instances(0).await
                    && test(&found)
                {
                    return Ok(found);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        within(WAIT, || format!("the registry shows that {what}"), read).await
    }

    /// Waits until a condition of the binding has a status, and returns its message.
    pub(super) async fn until_condition(&self, kind: &str, status: &str) -> Result<String> {
        self.until_message(kind, status, "").await
    }

    /// Waits until the binding has a condition with this status whose message contains `words`, and returns the message.
    pub(super) async fn until_message(&self, kind: &str, status: &str, words: &str) -> Result<String> {
        let api = self.api();
        let read = async {
            loop {
                let binding = api.get(self.name).await.context("read the binding")?;
                let conditions = binding.status.map(|status| status.conditions).unwrap_or_default();
                let is_wanted =
                    |it: &Condition| it.type_ == kind && it.status == status && it.message.contains(words);
                if let Some(found) = conditions.into_iter().find(is_wanted) {
                    return Ok(found.message);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        within(WAIT, || format!("{kind} of the binding to be {status} {words:?}"), read).await
    }

    /// Checks that the registry was read for the release of the pod, and that no deadline policy decided.
    pub(super) fn ensure_evidence(&self, pod: &Pod) -> Result<()> {
        ensure_evidence(pod, &format!("{}.{}", self.fixture.namespace(), self.name))
    }

    /// Merges a patch into the binding.
    pub(super) async fn patch(&self, patch: Value) -> Result<DiscoveryBinding> {
        let patched = self.api().patch(self.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.with_context(|| format!("patch the binding with {patch}"))
    }

    /// Deletes the binding, and waits until it is gone with its instances.
    pub(super) async fn end(self) -> Result<()> {
        self.delete().await?;
        let is_empty = |found: &[Instance]| !found.iter().any(|instance| instance.owner().is_some());
        self.until("no instance of the binding is left", is_empty).await.map(drop)
    }

    /// Deletes the binding, and waits until it is gone.
    pub(super) async fn delete(&self) -> Result<()> {
        let api = self.api();
        let deleted = api.delete(self.name, &DeleteParams::default()).await.context("delete the binding")?;
        let uid = deleted.left().and_then(|binding| binding.uid());
        let gone = async {
            while api.get_opt(self.name).await?.is_some_and(|binding| binding.uid() == uid) {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        within(WAIT, || "the binding to be gone".to_owned(), gone).await
    }
}
