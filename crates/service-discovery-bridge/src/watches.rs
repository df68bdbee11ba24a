//! The watches that keep the index up to date.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use podward_api::{ClusterRegistry, DiscoveryBinding};
use podward_kube_util::watched::{WatchMetrics, is_unknown_resource};
use podward_runtime::admin::ReadinessCondition;
use podward_runtime::retry::{API_SERVER, delay_after};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tokio_util::sync::CancellationToken;

use crate::index::Index;
use crate::model::{
    AdvancedStatefulSetObject, BindingKey, BoundPod, CloneSetObject, KruiseWorkload, PodObject,
};

/// The interval of looks for pods of lost nodes.
const LOST_NODES_INTERVAL: Duration = Duration::from_secs(2);

/// A kind of object in the index.
pub(crate) trait Indexed:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// The name of the watch in logs and metrics.
    const WATCH: &'static str;
    /// True if the CRD may not be installed. Until it is, there are no objects.
    const MAY_BE_ABSENT: bool = false;
    /// Identifies an object in a list.
    type Key: Eq + std::hash::Hash + Send;

    fn key(&self) -> Self::Key;
    fn put(self, index: &Index);
    fn remove(self, index: &Index);
    fn retain(listed: &HashSet<Self::Key>, index: &Index);
}

impl Indexed for PodObject {
    const WATCH: &'static str = "pods";
    type Key = String;

    fn key(&self) -> String {
        self.uid().unwrap_or_default()
    }

    fn put(self, index: &Index) {
        index.put_pod(BoundPod::new(self));
    }

    fn remove(self, index: &Index) {
        index.remove_pod(&self.namespace().unwrap_or_default(), &self.uid().unwrap_or_default());
    }

    fn retain(listed: &HashSet<String>, index: &Index) {
        index.retain_pods(listed);
    }
}

impl Indexed for DiscoveryBinding {
    const WATCH: &'static str = "discovery-bindings";
    type Key = BindingKey;

    fn key(&self) -> BindingKey {
        BindingKey { namespace: self.namespace().unwrap_or_default(), name: self.name_any() }
    }

    fn put(self, index: &Index) {
        index.put_binding(self.key(), self);
    }

    fn remove(self, index: &Index) {
        index.remove_binding(&self.key());
    }

    fn retain(listed: &HashSet<BindingKey>, index: &Index) {
        index.retain_bindings(listed);
    }
}

impl Indexed for ClusterRegistry {
    const WATCH: &'static str = "cluster-registries";
    type Key = String;

    fn key(&self) -> String {
        self.name_any()
    }

    fn put(self, index: &Index) {
        index.put_registry(self.name_any(), self);
    }

    fn remove(self, index: &Index) {
        index.remove_registry(&self.name_any());
    }

    fn retain(listed: &HashSet<String>, index: &Index) {
        index.retain_registries(listed);
    }
}

macro_rules! indexed_workload {
    ($kind:ty, $watch:literal) => {
        impl Indexed for $kind {
            const WATCH: &'static str = $watch;
            const MAY_BE_ABSENT: bool = true;
            type Key = KruiseWorkload;

            fn key(&self) -> KruiseWorkload {
                self.workload()
            }

            fn put(self, index: &Index) {
                index.put_lifecycle(self.workload(), self.lifecycle());
            }

            fn remove(self, index: &Index) {
                index.remove_lifecycle(&self.workload());
            }

            fn retain(listed: &HashSet<KruiseWorkload>, index: &Index) {
                index.retain_lifecycles(&<$kind as Resource>::kind(&()), listed);
            }
        }
    };
}

indexed_workload!(CloneSetObject, "clone-sets");
indexed_workload!(AdvancedStatefulSetObject, "advanced-stateful-sets");

/// Finds pods of lost nodes from time to time, until `stop`.
pub(crate) async fn find_lost_nodes(index: Arc<Index>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOST_NODES_INTERVAL)).await.is_some() {
        index.find_lost();
    }
}

/// Watches all objects of a kind and keeps `index` up to date until `stop`. Sets `listed` when the first list is complete.
///
/// A watch that fails is restarted with a list, because only a list shows that the index is up to date again. Until then
/// the index stays as it is: an error never counts as absence, except that the resource is unknown and may be.
pub(crate) async fn follow<K: Indexed>(
    client: Client,
    index: Arc<Index>,
    metrics: WatchMetrics,
    listed: ReadinessCondition,
    stop: CancellationToken,
) {
    let objects: Api<K> = Api::all(client);
    let work = async {
        let mut failures = 0;
        loop {
            let mut events = pin!(watcher(objects.clone(), watcher::Config::default()));
            let mut keys: HashSet<K::Key> = HashSet::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Init) => keys.clear(),
                    Ok(Event::InitApply(object)) => {
                        keys.insert(object.key());
                        object.put(&index);
                    }
                    Ok(Event::InitDone) => {
                        failures = 0;
                        K::retain(&keys, &index);
                        metrics.follows(K::WATCH, keys.len());
                        if listed.set(true) {
                            tracing::info!(watch = K::WATCH, objects = keys.len(), "listed");
                        }
                        keys.clear();
                    }
                    Ok(Event::Apply(object)) => object.put(&index),
                    Ok(Event::Delete(object)) => object.remove(&index),
                    Err(error) if K::MAY_BE_ABSENT && is_unknown_resource(&error) => {
                        tracing::debug!(watch = K::WATCH, "the API server does not know the resource yet");
                        K::retain(&HashSet::new(), &index);
                        metrics.follows(K::WATCH, 0);
                        break;
                    }
                    Err(error) => {
                        metrics.failed(K::WATCH);
                        tracing::warn!(watch = K::WATCH, %error, "the watch failed; it is started again with back-off");
                        break;
                    }
                }
            }
            failures += 1;
            tokio::time::sleep(delay_after(API_SERVER, failures)).await;
        }
    };
    stop.run_until_cancelled(work).await;
}
