//! Reads the objects around pods: only those that the stage of a pod needs. What pods have in common is read once.

mod shared_list;
mod shared_nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::join_all;
use futures::join;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ContainerStatus, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, LogParams};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource, ResourceExt};
use podward_api::{DiscoveryBinding, PodTransitionRule};
use podward_diagnosis::pod::{claim_names, is_live, is_ready, is_scheduled};
use podward_diagnosis::{PodEvents, Snapshot};
use serde::de::DeserializeOwned;

use crate::api::{is_not_found, with_timeout};
pub(crate) use shared_list::Listed;
use shared_list::SharedList;
use shared_nodes::SharedNodes;

/// The namespace of the Leases of kubelets.
const NODE_LEASES: &str = "kube-node-lease";
/// The lines of a log that are shown.
const LOG_LINES: i64 = 3;
/// What the kubelet returns as the log of a container that it has removed.
const NO_LOG: &str = "unable to retrieve container logs for ";

/// Reads what diagnoses need.
pub(crate) struct Gatherer<'c> {
    client: &'c Client,
    nodes: SharedNodes,
    services: SharedList<Service>,
    slices: SharedList<EndpointSlice>,
    budgets: SharedList<PodDisruptionBudget>,
    rules: SharedList<DeserializeGuard<PodTransitionRule>>,
    bindings: SharedList<DeserializeGuard<DiscoveryBinding>>,
}

impl<'c> Gatherer<'c> {
    pub(crate) fn new(client: &'c Client) -> Self {
        Self {
            client,
            nodes: SharedNodes::default(),
            services: SharedList::default(),
            slices: SharedList::default(),
            budgets: SharedList::default(),
            rules: SharedList::default(),
            bindings: SharedList::default(),
        }
    }

    /// The PodTransitionRules of a namespace.
    pub(crate) async fn rules(&self, namespace: &str) -> Listed<DeserializeGuard<PodTransitionRule>> {
        self.rules.read(self.client, namespace).await
    }

    /// The DiscoveryBindings of a namespace.
    pub(crate) async fn bindings(&self, namespace: &str) -> Listed<DeserializeGuard<DiscoveryBinding>> {
        self.bindings.read(self.client, namespace).await
    }

    /// Reads what a diagnosis of `pod` needs.
    pub(crate) async fn snapshot(&self, pod: Pod) -> Snapshot {
        let namespace = pod.namespace().unwrap_or_default();
        let reader = ObjectReader { client: self.client, namespace: namespace.clone() };
        let (scheduled, ready, live) = (is_scheduled(&pod), is_ready(&pod), is_live(&pod));
        let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let mut unread = Unread::default();
        let has_address = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
        let (events, node, lease, nodes, budgets, services, slices, logs) = join!(
            reader.events(&pod),
            reader.node(scheduled.then_some(node_name.as_str())),
            reader.lease(scheduled.then_some(node_name.as_str())),
            when(!scheduled, self.nodes.read(self.client)),
            when(live || ready, shared(self.budgets.read(self.client, &namespace))),
            when(has_address, shared(self.services.read(self.client, &namespace))),
            when(has_address, shared(self.slices.read(self.client, &namespace))),
            reader.previous_logs(&pod),
        );
        let (nodes, pods_of_nodes) = unread.take("nodes", nodes);
        let mut snapshot = Snapshot {
            now: Timestamp::now(),
            events: PodEvents::new(unread.take("events", events)),
            node: unread.take("nodes", node),
            lease: lease.ok().flatten(),
            nodes,
            pods_of_nodes,
            budgets: unread.take("PodDisruptionBudgets", budgets),
            services: unread.take("Services", services),
            slices: unread.take("EndpointSlices", slices),
            previous_logs: logs,
            pod,
            ..Snapshot::default()
        };
        if !scheduled {
            reader.volumes(&mut snapshot, &mut unread).await;
        }
        snapshot.unread = unread.0.into_iter().collect();
        snapshot
    }
}

/// What could not be read, and why. What does not exist in the cluster is not missing.
#[derive(Debug, Default)]
struct Unread(BTreeSet<String>);

impl Unread {
    fn take<T: Default>(&mut self, what: &str, found: anyhow::Result<Option<T>>) -> T {
        match found {
            Ok(found) => found.unwrap_or_default(),
            Err(error) if is_not_found(&error) => T::default(),
            Err(error) => {
                self.0.insert(format!("{what} could not be read: {error:#}"));
                T::default()
            }
        }
    }
}

async fn when<T>(needed: bool, read: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
    if needed { read.await.map(Some) } else { Ok(None) }
}

async fn shared<T>(listed: impl Future<Output = Listed<T>>) -> anyhow::Result<Arc<Vec<T>>> {
    listed.await.map_err(anyhow::Error::msg)
}

struct ObjectReader<'c> {
    client: &'c Client,
    namespace: String,
}

impl ObjectReader<'_> {
    async fn events(&self, pod: &Pod) -> anyhow::Result<Option<Vec<Event>>> {
        events_of(self.client, &self.namespace, pod.uid().as_deref().unwrap_or_default()).await.map(Some)
    }

    async fn node(&self, name: Option<&str>) -> anyhow::Result<Option<Option<Node>>> {
        let Some(name) = name else { return Ok(None) };
        with_timeout(Api::<Node>::all(self.client.clone()).get_opt(name)).await.map(Some)
    }

    async fn lease(&self, name: Option<&str>) -> anyhow::Result<Option<Lease>> {
        let Some(name) = name else { return Ok(None) };
        with_timeout(Api::<Lease>::namespaced(self.client.clone(), NODE_LEASES).get_opt(name)).await
    }

    /// The claims of the pod, their volumes and the StorageClasses.
    async fn volumes(&self, snapshot: &mut Snapshot, unread: &mut Unread) {
        let names = claim_names(&snapshot.pod);
        if names.is_empty() {
            return;
        }
        let everything = ListParams::default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &self.namespace);
        let claims = join_all(names.iter().map(async |name| with_timeout(api.get_opt(name)).await));
        let (claims, classes) = join!(claims, all::<StorageClass>(self.client, &everything));
        for claim in claims {
            snapshot.claims.extend(unread.take("PersistentVolumeClaims", claim.map(Some)));
        }
        snapshot.classes = unread.take("StorageClasses", classes.map(Some));
        let names = snapshot.claims.iter().filter_map(|claim| claim.spec.as_ref()?.volume_name.clone());
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let read = join_all(names.map(async |name| with_timeout(api.get_opt(&name)).await)).await;
        for volume in read {
            snapshot.volumes.extend(unread.take("PersistentVolumes", volume.map(Some)));
        }
    }

    /// The last lines of containers that have failed.
    async fn previous_logs(&self, pod: &Pod) -> BTreeMap<String, String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = pod.name_any();
        let read = failed(pod).into_iter().map(async |(container, previous)| {
            let params = LogParams {
                container: Some(container.clone()),
                previous,
                tail_lines: Some(LOG_LINES),
                limit_bytes: Some(4_096),
                ..LogParams::default()
            };
            let log = with_timeout(api.logs(&name, &params)).await.ok()?;
            Some((container, log))
        });
        let is_log = |log: &str| !log.trim().is_empty() && !log.starts_with(NO_LOG);
        join_all(read).await.into_iter().flatten().filter(|(_, log)| is_log(log)).collect()
    }
}

/// Lists objects of the cluster.
async fn all<T>(client: &Client, params: &ListParams) -> anyhow::Result<Vec<T>>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(with_timeout(Api::<T>::all(client.clone()).list(params)).await?.items)
}

/// Returns the events of an object.
pub(crate) async fn events_of(client: &Client, namespace: &str, uid: &str) -> anyhow::Result<Vec<Event>> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    Ok(with_timeout(api.list(&params)).await?.items)
}

/// Returns the containers whose last run has failed, and whether that is the previous run.
fn failed(pod: &Pod) -> Vec<(String, bool)> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let of = |container: &ContainerStatus| {
        let now = container.state.as_ref().and_then(|state| state.terminated.as_ref());
        let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        match (now, before) {
            (Some(now), _) => (now.exit_code != 0).then_some(false),
            (None, Some(_)) => (!container.ready).then_some(true),
            (None, None) => None,
        }
    };
    all.filter_map(|container| Some((container.name.clone(), of(container)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::StatusCode;
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::json;

    use super::*;
    use crate::api_server;

    const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";

    #[tokio::test]
    async fn of_the_volumes_of_a_namespace_only_those_of_the_pod_are_read() {
        let read = Arc::new(Mutex::new(Vec::new()));
        let reading = read.clone();
        let claim =
            |name: &str| json!({"metadata": {"name": name}, "spec": {"volumeName": format!("pv-{name}")}});
        let client = api_server::client(move |request| {
            let path = request.uri().path();
            if let Some(name) = path.strip_prefix("/api/v1/persistentvolumes/") {
                reading.lock().unwrap().push(name.to_owned());
                return Some(json_answer(&json!({"metadata": {"name": name}})));
            }
            Some(match path.strip_prefix(CLAIMS) {
                Some("") => {
                    let items = ["a", "b", "data", "web-0-scratch"].map(claim);
                    json_answer(&json!({"metadata": {}, "items": items}))
                }
                Some(name) => json_answer(&claim(name.trim_start_matches('/'))),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            })
        });
        let volumes = json!([
            {"name": "disk", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {}},
        ]);
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "web-0"}, "spec": {"containers": [], "volumes": volumes},
        });
        let snapshot = Gatherer::new(&client).snapshot(serde_json::from_value(pod).unwrap()).await;
        assert_eq!(*read.lock().unwrap(), ["pv-data", "pv-web-0-scratch"]);
        let claims: Vec<String> = snapshot.claims.iter().map(ResourceExt::name_any).collect();
        assert_eq!(claims, ["data", "web-0-scratch"]);
        assert_eq!(snapshot.volumes.len(), 2);
    }
}
