//! The Deployment of an act, with its Service and disruption budget, in a namespace of its own.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use podward_core::keys;
use serde_json::{Value, json};

use super::server::DemoServer;
use crate::{feed::PodFeed, pods};

pub(super) const NAME: &str = "web";
/// The Service for clients outside of the cluster.
const BALANCED: &str = "web-balanced";
pub(super) const SELECTOR: &str = "app=web";
/// The number of pods, unless there are two on each node.
pub const REPLICAS: usize = 4;
/// The time that an act, or a step of it, may take, without the waits for caches of clients.
const LONGEST: Duration = Duration::from_secs(400);
/// The usual CPU request of a pod.
pub const CPU_REQUEST: &str = "100m";
const FIELD_MANAGER: &str = "podward-demo";
const PORT: u16 = 80;

/// The ports of a Service on each node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePorts {
    /// The port for requests.
    pub(super) port: u16,
    /// The port for health checks of load balancers.
    pub(super) health: u16,
}

/// The Deployment of an act.
#[derive(Debug)]
pub struct DemoWorkload {
    /// Its namespace.
    pub namespace: String,
    /// The image of its pods.
    pub image: String,
    /// The behaviour of its pods on SIGTERM.
    pub server: DemoServer,
    /// True if its pods are opted in to Podward.
    pub opted_in: bool,
    /// The `strategy` of the Deployment. The default is that of Kubernetes.
    pub strategy: Option<Value>,
    /// The number of nodes that get two pods each. Without it, there are [`REPLICAS`] pods, wherever they are scheduled.
    pub two_pods_on: Option<usize>,
    /// The time for which each removal of a pod waits for caches of clients. Acts may take longer by it.
    pub removal_wait: Duration,
    /// The CPU request of a pod. Without one, a pod gets almost no CPU time while the machine is busy, and loses requests for
    /// that reason.
    pub cpu_request: &'static str,
    /// The watch on its pods.
    pub feed: PodFeed,
}

impl DemoWorkload {
    /// Returns the number of its pods.
    pub(super) fn replicas(&self) -> usize {
        self.two_pods_on.map_or(REPLICAS, |nodes| 2 * nodes)
    }

    /// Returns the time that an act, or a step of it, may take.
    pub(super) fn longest(&self) -> Duration {
        let removals = u32::try_from(self.replicas()).unwrap_or(u32::MAX);
        LONGEST + self.removal_wait.saturating_mul(removals)
    }

    pub(super) fn client(&self) -> Client {
        self.feed.client()
    }

    /// Returns the API of Deployments in its namespace.
    #[must_use]
    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub(super) fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Creates everything, waits until all pods are available, and returns the address of the Service.
    ///
    /// # Errors
    /// Fails if the API server rejects an object, or a pod does not become available.
    pub async fn create(&self) -> Result<SocketAddr> {
        self.create_namespace().await?;
        self.create_service().await?;
        self.create_pods().await?;
        self.address().await
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Creates the Service for clients in the cluster.
    pub(super) async fn create_service(&self) -> Result<()> {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT, "targetPort": 8080}]},
        });
        self.apply(&self.services(), NAME, &service).await
    }

    /// Returns the address of the Service.
    pub(super) async fn address(&self) -> Result<SocketAddr> {
        let service = self.services().get(NAME).await.context("read the Service")?;
        let address = service.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
        let address: IpAddr = address.parse().with_context(|| format!("understand the address {address}"))?;
        Ok(SocketAddr::new(address, PORT))
    }

    /// Creates the namespace, if it does not exist.
    pub(super) async fn create_namespace(&self) -> Result<()> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        self.apply(&Api::<Namespace>::all(self.client()), &self.namespace, &namespace).await
    }

    /// Creates the Deployment and its disruption budget, and waits until all pods are available.
    pub(super) async fn create_pods(&self) -> Result<()> {
        let budget = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": NAME},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": NAME}}},
        });
        self.apply(&self.budgets(), NAME, &budget).await?;
        self.apply(&self.deployments(), NAME, &self.deployment()).await?;
        self.until_in_service(self.replicas()).await.map(drop)
    }

    /// Creates a Service of type LoadBalancer with external traffic policy Local for the same pods, and returns its
    /// node ports. No load balancer needs to exist.
    pub(super) async fn open_node_ports(&self) -> Result<NodePorts> {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": BALANCED},
            "spec": {
                "type": "LoadBalancer",
                "externalTrafficPolicy": "Local",
                "selector": {"app": NAME},
                "ports": [{"port": PORT, "targetPort": 8080}],
            },
        });
        let services = self.services();
        self.apply(&services, BALANCED, &service).await?;
        let spec = services.get(BALANCED).await.context("read the Service")?.spec.unwrap_or_default();
        let port = |port: Option<i32>| port.and_then(|port| u16::try_from(port).ok());
        let node_port = spec.ports.iter().flatten().find_map(|port| port.node_port);
        Ok(NodePorts {
            port: port(node_port).context("the Service has no node port")?,
            health: port(spec.health_check_node_port).context("the Service has no port for health checks")?,
        })
    }

    fn deployment(&self) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME},
            "spec": {
                "replicas": self.replicas(),
                "selector": {"matchLabels": {"app": NAME}},
                "template": self.template(),
                "strategy": self.strategy,
            },
        })
    }

    /// Returns the template of its pods.
    pub(super) fn template(&self) -> Value {
        let mut labels = json!({"app": NAME});
        if self.opted_in {
            labels[keys::CONTROL_LABEL] = json!(keys::CONTROL_VALUE);
        }
        let mut spec = pods::server_spec(&self.image);
        if let Some(variables) = spec["containers"][0]["env"].as_array_mut() {
            variables.push(json!({"name": "SHUTDOWN", "value": self.server.mode()}));
        }
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": self.cpu_request}});
        if self.two_pods_on.is_some() {
            // The pods of each version are spread by themselves, so that old ones do not keep new ones from a node.
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": NAME}},
                "matchLabelKeys": ["pod-template-hash"],
            }]);
        }
        json!({"metadata": {"labels": labels}, "spec": spec})
    }

    /// Returns whether the pod gets traffic, by the state that Kubernetes and Podward store.
    pub(super) fn serves(&self, pod: &Pod) -> bool {
        let is_available = !self.opted_in || pods::is_available(pod);
        is_available && pods::is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
    }

    /// Waits until there are `count` pods and all are available.
    ///
    /// # Errors
    /// Fails if that takes too long.
    pub async fn until_in_service(&self, count: usize) -> Result<Vec<Arc<Pod>>> {
        let all = |pods: &[&Pod]| pods.len() == count && pods.iter().all(|pod| self.serves(pod));
        self.feed.until_pods_within(self.longest(), &format!("{count} pods are in service"), all).await
    }

    /// Returns the names of the existing pods.
    pub(super) fn names(&self) -> Vec<String> {
        self.feed.all().iter().map(|pod| pod.name_any()).collect()
    }

    /// Removes everything and waits until the pods are gone.
    pub(super) async fn remove(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let removed = namespaces.delete(&self.namespace, &DeleteParams::default()).await;
        removed.with_context(|| format!("delete the namespace {}", self.namespace))?;
        let gone = |pods: &[&Pod]| pods.is_empty();
        self.feed.until_pods_within(self.longest(), "all pods are gone", gone).await.map(drop)
    }

    pub(super) async fn apply<K>(&self, api: &Api<K>, name: &str, object: &Value) -> Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
        applied.map(drop).with_context(|| format!("apply {} {}/{name}", object["kind"], self.namespace))
    }
}
