//! A Deployment whose pods are found through a registry, and clients that find them there.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use demo_client::{Connections, LoadReport};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject},
    core::GroupVersionKind,
};
use podward_core::hooks::hook_finalizer;
use podward_registries::ServiceKey;
use serde_json::json;

use super::{server::RegistryServer, syncer::Syncer};
use crate::{
    Cluster, LoadClient, LoadClientOptions, LoadTargets,
    demo::{act::Act, runner::PATH, workload::DemoWorkload},
    pods,
    podward::until_reachable,
    wait::{WAIT, within},
};

/// The name of the binding.
const BINDING: &str = "web";
/// The interval of looks at the report of the clients.
const POLL: Duration = Duration::from_millis(100);
const PORT: u16 = 8080;

/// The clients of a registry.
#[derive(Clone, Debug)]
pub struct RegistryClients {
    /// The path of the load client.
    pub program: PathBuf,
    /// The interval at which they read the registry, in whole seconds.
    pub cache: Duration,
    /// The kinds of connections.
    pub connections: Vec<Connections>,
    /// The request rate per second, for each kind of connection.
    pub rate: u32,
    /// The age at which they do not use a list any more, in whole seconds. Usual clients use it nevertheless.
    pub max_age: Option<Duration>,
    /// What they may take longer than their interval: a read of the registry, and a request in flight.
    pub slack: Duration,
    /// The time after which a request without a complete response counts as lost.
    pub timeout: Duration,
}

/// A Deployment without a Service, and running clients that know its pods from a registry. With Podward, a
/// DiscoveryBinding selects the pods. Without Podward, a syncer registers them.
#[derive(Debug)]
pub struct DiscoveredWorkload {
    workload: DemoWorkload,
    load: LoadClient,
    _syncer: Option<Syncer>,
}

impl RegistryClients {
    /// The [`slack`](Self::slack) of clients on a machine that has time for them.
    pub const USUAL_SLACK: Duration = Duration::from_secs(1);

    /// Returns how long clients use an address that they have read: `clientCacheSeconds` of the binding.
    fn longest_use(&self) -> Duration {
        self.cache + self.slack
    }

    /// Returns how long Podward waits after a removal.
    #[must_use]
    pub fn removal_wait(&self, server: &RegistryServer) -> Duration {
        server.list_age() + self.longest_use()
    }
}

impl DiscoveredWorkload {
    /// Creates the pods, and starts the clients when all pods are in service.
    ///
    /// # Errors
    /// Fails if something cannot be created, a pod does not become available, or the clients get no good response.
    pub async fn start(
        cluster: &Cluster,
        workload: DemoWorkload,
        server: &RegistryServer,
        clients: RegistryClients,
    ) -> Result<Self> {
        let service = format!("{}-{BINDING}", workload.namespace);
        workload.create_namespace().await?;
        let syncer = match workload.opted_in {
            true => {
                bind(&workload, server, &service, clients.longest_use()).await?;
                None
            }
            false => {
                let key = ServiceKey { name: service.clone(), ..ServiceKey::default() };
                Some(Syncer::start(workload.feed.clone(), server.client()?, key))
            }
        };
        workload.create_pods().await?;
        if workload.opted_in {
            let finalizer = hook_finalizer(&hook(&workload));
            let holds = |pod: &&Pod| pods::holders(pod).any(|holder| holder == finalizer);
            let all_held = |pods: &[&Pod]| pods.iter().all(holds);
            workload.feed.until_pods("the binding holds all pods", all_held).await?;
        }
        let options = LoadClientOptions {
            timeout: clients.timeout,
            program: clients.program,
            image: workload.image.clone(),
            targets: LoadTargets::Discovered {
                registry: server.kind(),
                addresses: server.addresses(),
                service,
                cache: clients.cache,
                max_age: clients.max_age,
            },
            node: None,
            path: PATH.to_owned(),
            connections: clients.connections,
            rate: clients.rate,
        };
        let load = LoadClient::start(cluster, options).await?;
        let started = Self { workload, load, _syncer: syncer };
        started.until_all_answer().await?;
        Ok(started)
    }

    /// Returns the Deployment.
    #[must_use]
    pub fn workload(&self) -> &DemoWorkload {
        &self.workload
    }

    /// Performs an act. `image` is the new image of an update.
    ///
    /// # Errors
    /// Fails if the act fails or does not end.
    pub async fn perform(&self, act: Act, image: &str) -> Result<()> {
        act.perform(&self.workload, image).await
    }

    /// Waits until each pod has answered requests of each kind of connections from now on.
    ///
    /// # Errors
    /// Fails if that takes too long: the clients do not find a pod.
    pub async fn until_all_answer(&self) -> Result<()> {
        let before = self.answers().await?;
        let answered = async {
            loop {
                let now = self.answers().await?;
                let pods = self.workload.feed.all();
                let addresses = pods.iter().filter_map(address);
                let is_new = |address: SocketAddr| {
                    now.iter().enumerate().all(|(load, answers)| {
                        let count = |of: Option<&Answers>| of.and_then(|of| of.get(&address)).copied();
                        count(Some(answers)) > count(before.get(load))
                    })
                };
                if addresses.into_iter().all(is_new) {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let what = || format!("the clients to use each pod of namespace {}", self.workload.namespace);
        within(WAIT, what, answered).await
    }

    /// Returns the number of answers of each address, for each kind of connections.
    async fn answers(&self) -> Result<Vec<Answers>> {
        Ok(self.load.report().await?.loads.into_iter().map(|load| load.answered_by).collect())
    }

    /// Stops the clients, removes the binding with its instances, and returns the results of each kind of connections, and
    /// the Deployment, which goes on.
    ///
    /// # Errors
    /// Fails if the clients do not respond, or the binding does not end.
    pub async fn stop(self) -> Result<(Vec<LoadReport>, DemoWorkload)> {
        let loads = self.load.stop().await?.loads;
        if self.workload.opted_in {
            unbind(&self.workload).await?;
        }
        Ok((loads, self.workload))
    }
}

type Answers = BTreeMap<SocketAddr, u64>;

fn address(pod: &Arc<Pod>) -> Option<SocketAddr> {
    let ip = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    Some(SocketAddr::new(ip, PORT))
}

/// The name of the hook of the binding.
fn hook(workload: &DemoWorkload) -> String {
    format!("{}.{BINDING}", workload.namespace)
}

/// Creates the DiscoveryBinding, and waits until its hook is asked about new pods.
async fn bind(
    workload: &DemoWorkload,
    server: &RegistryServer,
    service: &str,
    longest_use: Duration,
) -> Result<()> {
    let binding = json!({
        "apiVersion": "podward.io/v1alpha1",
        "kind": "DiscoveryBinding",
        "metadata": {"name": BINDING},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "registry": {"connection": server.connection()},
            "service": {"name": service},
            "port": PORT,
            "clientCacheSeconds": longest_use.as_secs(),
        },
    });
    workload.apply(&bindings(workload), BINDING, &binding).await?;
    until_reachable(&workload.client(), &hook(workload)).await.context("the hook of the binding")
}

/// Deletes the binding, and waits until it is gone: its instances are deregistered then.
async fn unbind(workload: &DemoWorkload) -> Result<()> {
    let bindings = bindings(workload);
    bindings.delete(BINDING, &DeleteParams::default()).await.context("delete the binding")?;
    let gone = async {
        while bindings.get_opt(BINDING).await.context("read the binding")?.is_some() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || format!("the end of the binding in namespace {}", workload.namespace), gone).await
}

fn bindings(workload: &DemoWorkload) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("podward.io", "v1alpha1", "DiscoveryBinding");
    Api::namespaced_with(workload.client(), &workload.namespace, &ApiResource::from_gvk(&kind))
}
