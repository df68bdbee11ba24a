//! The node and the namespace of a pod, from caches or from the API server.

use std::fmt;
use std::time::{Duration, Instant};

use futures::Stream;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{GetParams, Request, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use podward_core::Pod;
use podward_core::deletion::hold::NodeState;
use podward_kube_util::nodes::{self, SlimNode};
use podward_kube_util::watched::{Watch, WatchMetrics, Watched};
use podward_runtime::WebhookSetup;

/// The timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// What is known about the node and the namespace of a pod. `None` if it must be read from the API server.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeAndNamespace {
    pub(crate) node: Option<NodeState>,
    pub(crate) namespace_terminating: Option<bool>,
}

/// Caches of nodes and namespaces, and a client for single pods.
pub(super) struct ClusterState {
    client: Client,
    nodes: Watched<NodeState>,
    /// The namespaces that are being deleted.
    terminating: Watched<()>,
}

impl fmt::Debug for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, terminating, .. } = self;
        f.debug_struct("ClusterState")
            .field("nodes", nodes)
            .field("terminating", terminating)
            .finish_non_exhaustive()
    }
}

impl ClusterState {
    /// Watches nodes and namespaces.
    pub(crate) fn follow(client: Client, setup: &mut WebhookSetup) -> Self {
        let metrics = WatchMetrics::default();
        metrics.register(&mut setup.registry);
        let watch = |name| Watch {
            name,
            listed: setup.readiness.condition(name),
            metrics: metrics.clone(),
            may_be_absent: false,
            stop: setup.stop.clone(),
        };
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        Self {
            nodes: nodes::follow(client.clone(), watch("nodes"), |_| {}),
            terminating: Watched::keep(
                watch("namespaces"),
                move || watcher(namespaces.clone(), watcher::Config::default()),
                |namespace| namespace.metadata.deletion_timestamp.map(|_| ()),
                |_| {},
            ),
            client,
        }
    }

    /// Returns what the caches contain. A node that is missing in the cache may exist, so it is not reported as gone.
    pub(crate) fn cached(&self, pod: &Pod, namespace: &str) -> NodeAndNamespace {
        let node = pod.node_name().and_then(|name| self.nodes.get(name));
        let terminating = self.terminating.get(namespace).is_some();
        NodeAndNamespace {
            node: node.filter(|_| self.nodes.is_current()),
            namespace_terminating: self.terminating.is_current().then_some(terminating),
        }
    }

    /// Reads what is missing in `known` from the API server before `deadline`. What cannot be read does not allow the
    /// deletion.
    pub(crate) async fn look_up_missing(
        &self,
        known: NodeAndNamespace,
        pod: &Pod,
        namespace: &str,
        deadline: Instant,
    ) -> NodeAndNamespace {
        let node = async {
            match (known.node, pod.node_name()) {
                (None, Some(name)) => self.node(name, deadline).await,
                (node, _) => node.unwrap_or_default(),
            }
        };
        let terminating = async {
            match known.namespace_terminating {
                None => self.is_namespace_terminating(namespace, deadline).await,
                Some(terminating) => terminating,
            }
        };
        let (node, terminating) = tokio::join!(node, terminating);
        NodeAndNamespace { node: Some(node), namespace_terminating: Some(terminating) }
    }

    async fn node(&self, name: &str, deadline: Instant) -> NodeState {
        match self.get::<SlimNode>("/api/v1/nodes", name, deadline).await {
            Ok(Some(node)) => node.state(),
            Ok(None) => NodeState::Gone,
            Err(error) => {
                tracing::warn!(node = name, "could not read a node, so its pods are held: {error}");
                NodeState::Unknown
            }
        }
    }

    /// Reads whether the node of `pod` is cordoned or does not exist. Returns false for a pod without a node.
    pub(crate) async fn is_on_cordoned_node(&self, pod: &Pod, deadline: Instant) -> Result<bool, String> {
        let Some(name) = pod.node_name() else { return Ok(false) };
        let node = self.get::<SlimNode>("/api/v1/nodes", name, deadline).await?;
        Ok(node.is_none_or(|node| node.is_cordoned()))
    }

    async fn is_namespace_terminating(&self, name: &str, deadline: Instant) -> bool {
        match self.get::<PartialObjectMeta<Namespace>>("/api/v1/namespaces", name, deadline).await {
            Ok(namespace) => {
                namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
            }
            Err(error) => {
                tracing::warn!(namespace = name, "could not read a namespace, so its pods are held: {error}");
                false
            }
        }
    }

    /// Reads a pod. Returns `None` if it does not exist.
    pub(crate) async fn pod(
        &self,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Pod>, String> {
        self.get(&format!("/api/v1/namespaces/{namespace}/pods"), name, deadline).await
    }

    /// Watches a pod for at most `seconds`. The first event is the current pod, if it exists.
    pub(crate) async fn watch_pod(
        &self,
        namespace: &str,
        name: &str,
        seconds: u32,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Pod>, kube::Error>> + Send + use<>, kube::Error> {
        let only = format!("metadata.name={name}");
        let parameters = WatchParams::default().fields(&only).timeout(seconds).disable_bookmarks();
        // Without a resource version the watch begins with the current pod.
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
            .watch(&parameters, "")
            .map_err(kube::Error::BuildRequest)?;
        self.client.request_events::<Pod>(request).await
    }

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<T>, String> {
        let request =
            Request::new(path).get(name, &GetParams::default()).map_err(|error| error.to_string())?;
        let deadline = deadline.min(Instant::now() + READ_TIMEOUT);
        match tokio::time::timeout_at(deadline.into(), self.client.request::<T>(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the API server did not respond in time".to_owned()),
        }
    }
}
