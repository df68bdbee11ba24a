//! A DiscoveryBinding of a test, and what its registry shows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::BoxFuture;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use podward_api::DiscoveryBinding;
use podward_e2e::Fixture;
use podward_registries::{
    Connection, Consul, ConsulOptions, Credentials, DirectDialer, Etcd, EtcdOptions, Eureka, EurekaOptions,
    Instance, Registry, ServiceKey,
};
use podward_support::{WAIT, within};
use serde_json::{Value, json};

/// The interval of reads of a registry.
const POLL: Duration = Duration::from_millis(20);
/// The name of the node in Consul's catalog, as that of the bridge.
const NODE: &str = "podward";

/// A DiscoveryBinding of the namespace of a test for pods with the label `app: web`. Its service is `<namespace>-web`.
pub(super) struct Bound {
    fixture: Arc<Fixture>,
    pub(super) registry: Arc<dyn Registry>,
    pub(super) service: ServiceKey,
}

/// The labels of a pod that has opted in and that the binding selects.
pub(super) fn labels() -> Value {
    json!({podward_core::keys::CONTROL_LABEL: podward_core::keys::CONTROL_VALUE, "app": "web"})
}

/// Returns a client of its own for a registry.
pub(super) fn client(kind: &str, addresses: &[String]) -> Result<Arc<dyn Registry>> {
    let connection = Connection {
        addresses: addresses.to_vec(),
        tls: None,
        credentials: Credentials::Anonymous,
        timeout: Duration::from_secs(10),
        dialer: Arc::new(DirectDialer),
    };
    let registry: Result<Arc<dyn Registry>, String> = match kind {
        "Consul" => {
            let options = ConsulOptions { node: NODE.to_owned(), ..ConsulOptions::default() };
            Consul::new(&connection, options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        "Etcd" => {
            let options = EtcdOptions { prefix: "/services".to_owned() };
            Etcd::new(&connection, &options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        "Eureka" => Eureka::new(&connection, EurekaOptions::default())
            .map(|client| Arc::new(client) as Arc<dyn Registry>),
        other => bail!("no registry {other}"),
    };
    registry.map_err(anyhow::Error::msg)
}

/// Returns a connection for a binding.
pub(super) fn connection(kind: &str, addresses: &[String]) -> Value {
    let mut connection = json!({"kind": kind, "addresses": addresses});
    if kind == "Etcd" {
        connection["etcd"] = json!({"prefix": "/services"});
    }
    connection
}

impl Bound {
    /// Creates a binding. `change` is merged into its spec. Clients keep what they have read for no time.
    pub(super) async fn new(
        fixture: Arc<Fixture>,
        kind: &'static str,
        addresses: Vec<String>,
        change: Value,
    ) -> Result<Self> {
        let name = format!("{}-web", fixture.namespace());
        let mut object = json!({
            "apiVersion": "podward.io/v1alpha1",
            "kind": "DiscoveryBinding",
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "registry": {"connection": connection(kind, &addresses)},
                "service": {"name": "${pod.namespace}-web"},
                "port": 8080,
                "metadata": {"pod": "${pod.name}"},
                "clientCacheSeconds": 0,
                "drift": {"intervalSeconds": 10},
            },
        });
        merge(&mut object["spec"], change);
        let bound = Self {
            registry: client(kind, &addresses)?,
            fixture,
            service: ServiceKey { name, ..ServiceKey::default() },
        };
        let object = serde_json::from_value(object).context("describe the binding")?;
        bound.api().create(&PostParams::default(), &object).await.context("create the binding")?;
        Ok(bound)
    }

    pub(super) fn api(&self) -> Api<DiscoveryBinding> {
        Api::namespaced(self.fixture.client(), self.fixture.namespace())
    }

    /// Creates a pod that the binding selects.
    pub(super) fn create<'b>(&'b self, name: &'b str) -> BoxFuture<'b, Result<()>> {
        Box::pin(async move { self.fixture.create_with(name, &labels(), &json!({})).await.map(drop) })
    }

    /// Returns the instances at an address.
    pub(super) fn instances(&self, address: usize) -> BoxFuture<'static, Result<Vec<Instance>>> {
        let (registry, service) = (Arc::clone(&self.registry), self.service.clone());
        Box::pin(async move { registry.instances(address, &service).await.context("read the registry") })
    }

    /// Returns the instances of a pod at the first address.
    pub(super) fn of_pod<'b>(&'b self, pod: &'b str) -> BoxFuture<'b, Result<Vec<Instance>>> {
        Box::pin(async move {
            let found = self.instances(0).await?;
            Ok(found.into_iter().filter(|it| it.owner().is_some_and(|owner| owner.pod == pod)).collect())
        })
    }

    /// Returns whether the first address shows the pod in service: `None` if it shows no instance.
    pub(super) fn in_service<'b>(&'b self, pod: &'b str) -> BoxFuture<'b, Result<Option<bool>>> {
        Box::pin(async move {
            let found = self.of_pod(pod).await?;
            match found.as_slice() {
                [] => Ok(None),
                [one] => Ok(Some(one.in_service)),
                several => bail!("pod {pod} has {} instances: {several:?}", several.len()),
            }
        })
    }

    /// Waits until the instances at the first address fit.
    pub(super) fn until<'b>(
        &'b self,
        what: &'b str,
        test: impl Fn(&[Instance]) -> bool + Send + Sync + 'b,
    ) -> BoxFuture<'b, Result<Vec<Instance>>> {
        Box::pin(async move {
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
        })
    }

    /// Waits until a condition of the binding has a status, and returns its message.
    pub(super) fn until_condition<'b>(
        &'b self,
        kind: &'b str,
        status: &'b str,
    ) -> BoxFuture<'b, Result<String>> {
        Box::pin(async move {
            let api = self.api();
            let read = async {
                loop {
                    let binding = api.get("web").await.context("read the binding")?;
                    let conditions = binding.status.map(|status| status.conditions).unwrap_or_default();
                    let found = conditions.into_iter().find(|it| it.type_ == kind && it.status == status);
                    if let Some(found) = found {
                        return Ok(found.message);
                    }
                    tokio::time::sleep(POLL).await;
                }
            };
            within(WAIT, || format!("{kind} of the binding to be {status}"), read).await
        })
    }

    /// Merges a patch into the binding.
    pub(super) fn patch<'b>(&'b self, patch: Value) -> BoxFuture<'b, Result<DiscoveryBinding>> {
        Box::pin(async move {
            let patched = self.api().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await;
            patched.with_context(|| format!("patch the binding with {patch}"))
        })
    }

    /// Deletes the binding, and waits until it is gone with its instances.
    pub(super) fn end(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let api = self.api();
            let deleted = api.delete("web", &DeleteParams::default()).await.context("delete the binding")?;
            let uid = deleted.left().and_then(|binding| binding.uid());
            let gone = async {
                while api.get_opt("web").await?.is_some_and(|binding| binding.uid() == uid) {
                    tokio::time::sleep(POLL).await;
                }
                Ok(())
            };
            within(WAIT, || "the binding to be gone".to_owned(), gone).await?;
            let left = self.instances(0).await?;
            let ours: Vec<_> = left.iter().filter(|instance| instance.owner().is_some()).collect();
            anyhow::ensure!(ours.is_empty(), "instances are left: {ours:?}");
            Ok(())
        })
    }
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}
