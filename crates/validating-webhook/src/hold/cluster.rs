//! What the cluster says about a pod's surroundings: from memory where a watch keeps it, else by asking.

use std::fmt;
use std::time::{Duration, Instant};

use futures::Stream;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{GetParams, Request, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use podward_core::Pod;
use podward_core::hold::Node;
use podward_runtime::Setup;
use podward_runtime::nodes::{self, SlimNode};
use podward_runtime::watched::{Watch, WatchMetrics, Watched};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(2);

/// What is known of a pod's surroundings; `None` where somebody must ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) node: Option<Node>,
    pub(crate) namespace_terminating: Option<bool>,
}

/// Nodes and namespaces are kept; pods are asked for one at a time.
pub(crate) struct Cluster {
    client: Client,
    nodes: Watched<Node>,
    /// Only those that are being deleted.
    leaving: Watched<()>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, leaving, .. } = self;
        f.debug_struct("Cluster").field("nodes", nodes).field("leaving", leaving).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn follow(client: Client, setup: &mut Setup) -> Self {
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
            leaving: Watched::keep(
                watch("namespaces"),
                move || watcher(namespaces.clone(), watcher::Config::default()),
                |namespace| namespace.metadata.deletion_timestamp.map(|_| ()),
                |_| {},
            ),
            client,
        }
    }

    /// What memory has. That a node isn't there is for the API server to say.
    pub(crate) fn recall(&self, pod: &Pod, namespace: &str) -> Surroundings {
        let node = pod.node_name().and_then(|name| self.nodes.get(name));
        let leaving = self.leaving.get(namespace).is_some();
        Surroundings {
            node: node.filter(|_| self.nodes.is_current()),
            namespace_terminating: self.leaving.is_current().then_some(leaving),
        }
    }

    /// Asks for what is missing in `known`, both at once, at most until `deadline`. What can't be had counts against letting go.
    pub(crate) async fn complete(
        &self,
        known: Surroundings,
        pod: &Pod,
        namespace: &str,
        deadline: Instant,
    ) -> Surroundings {
        let node = async {
            match (known.node, pod.node_name()) {
                (None, Some(name)) => self.node(name, deadline).await,
                (node, _) => node.unwrap_or_default(),
            }
        };
        let leaving = async {
            match known.namespace_terminating {
                None => self.is_leaving(namespace, deadline).await,
                Some(leaving) => leaving,
            }
        };
        let (node, leaving) = tokio::join!(node, leaving);
        Surroundings { node: Some(node), namespace_terminating: Some(leaving) }
    }

    async fn node(&self, name: &str, deadline: Instant) -> Node {
        match self.get::<SlimNode>("/api/v1/nodes", name, deadline).await {
            Ok(Some(node)) => node.standing(),
            Ok(None) => Node::Gone,
            Err(error) => {
                tracing::warn!(node = name, "could not look at a node, so its pods are held: {error}");
                Node::Unknown
            }
        }
    }

    async fn is_leaving(&self, name: &str, deadline: Instant) -> bool {
        match self.get::<PartialObjectMeta<Namespace>>("/api/v1/namespaces", name, deadline).await {
            Ok(namespace) => {
                namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
            }
            Err(error) => {
                tracing::warn!(
                    namespace = name,
                    "could not look at a namespace, so its pods are held: {error}"
                );
                false
            }
        }
    }

    /// The pod, if there is one.
    pub(crate) async fn pod(
        &self,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Pod>, String> {
        self.get(&format!("/api/v1/namespaces/{namespace}/pods"), name, deadline).await
    }

    /// The pod as it is, and every change to it, for at most `seconds`. If there is none, there is nothing.
    pub(crate) async fn watch_pod(
        &self,
        namespace: &str,
        name: &str,
        seconds: u32,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Pod>, kube::Error>> + Send + use<>, kube::Error> {
        let only = format!("metadata.name={name}");
        let parameters = WatchParams::default().fields(&only).timeout(seconds).disable_bookmarks();
        // From the most recent version: it begins with the pod as it is.
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
        let deadline = deadline.min(Instant::now() + LOOK);
        match tokio::time::timeout_at(deadline.into(), self.client.request::<T>(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the API server did not answer in time".to_owned()),
        }
    }
}

/// Whether `name` can be the name of an object: only such are put into the path of a request. For another one the API server has
/// its own answer.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_that_would_lead_elsewhere_are_told_apart() {
        assert!(is_name("web-0") && is_name("web-0.example.com"));
        for name in ["", "..", "a/b", "a?b", "a%2fb", "A", "é", &"a".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
