//! Watches of single objects, kept only while a pod waits for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::deletion::Workload;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::workloads::{Owner, resource_of, wants};
use crate::cached_pod::{CachedPod, PodKey};

/// Each is a request that stays open. Past this many nobody is called early; what decides is read at its time all the same.
const MOST: usize = 200;
/// Pods to look at that wait in line; the line is emptied by the controller's queue, which keeps each pod once.
const QUEUE: usize = 10_000;

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Watched {
    Owner { uid: String },
    Budget { namespace: String, name: String },
}

struct Watch {
    /// Another number after every change.
    version: u64,
    waiting: HashSet<PodKey>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Watches = Arc<Mutex<HashMap<Watched, Watch>>>;

/// The watches, and where they send pods that are to be looked at.
pub(super) struct Waiting {
    client: Client,
    watches: Watches,
    /// Pods that wait for others to be in service, see [`Waiting::for_others`].
    for_others: Mutex<HashSet<PodKey>>,
    awake: mpsc::Sender<ObjectRef<CachedPod>>,
}

/// Never the same number twice, so that a watch that ended is not taken for the one that came after it.
fn next_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Waiting {
    /// No watches yet; and the pods that are to be looked at because what they wait for has changed.
    pub(super) fn new(client: Client) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let (awake, mut pods) = mpsc::channel(QUEUE);
        let stream = futures::stream::poll_fn(move |context| pods.poll_recv(context));
        (Waiting { client, watches: Watches::default(), for_others: Mutex::default(), awake }, stream)
    }

    /// A number that stays the same while the owner `uid` is watched and wants the same; `None` while it isn't watched.
    pub(super) fn version(&self, uid: &str) -> Option<u64> {
        let key = Watched::Owner { uid: uid.to_owned() };
        self.watches.lock().get(&key).map(|watch| watch.version)
    }

    /// Looks at `pod` again when `owner` doesn't want what it `wanted` any more. Gives the version to begin with if it was not
    /// watched before.
    pub(super) fn for_owner(&self, pod: &PodKey, owner: &OwnerReference, wanted: &Workload) -> Option<u64> {
        let resource = resource_of(owner)?;
        let key = Watched::Owner { uid: owner.uid.clone() };
        let (owner, mut last) = (owner.clone(), wanted.clone());
        let api: Api<Owner> = Api::namespaced_with(self.client.clone(), &pod.namespace, &resource);
        self.add(key, pod, || {
            let config = watcher::Config::default().fields(&format!("metadata.name={}", owner.name));
            watcher(api, config).default_backoff().filter_map(move |event| {
                let wants = match event {
                    Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                        Some(wants(&found, &owner, Timestamp::now()))
                    }
                    Ok(watcher::Event::Delete(_)) => Some(Workload::Ending),
                    _ => None,
                };
                let changed = wants.filter(|wants| *wants != last).map(|wants| last = wants);
                std::future::ready(changed)
            })
        })
    }

    /// Looks at `pod` too when the owner `uid`, which is watched, changes. If it has changed since `version`, that is now.
    pub(super) fn also_for_owner(&self, pod: &PodKey, uid: &str, version: Option<u64>) {
        let key = Watched::Owner { uid: uid.to_owned() };
        if let Some(watch) = self.watches.lock().get_mut(&key) {
            watch.waiting.insert(pod.clone());
            if version != Some(watch.version) {
                self.call(pod);
            }
        }
    }

    /// Looks at `pod` again when another one of its namespace comes into service.
    pub(super) fn for_others(&self, pod: &PodKey) {
        self.for_others.lock().insert(pod.clone());
    }

    /// `pod` doesn't wait for others any more.
    pub(super) fn not_for_others(&self, pod: &PodKey) {
        self.for_others.lock().remove(pod);
    }

    /// A pod of `namespace` has come into service.
    pub(super) fn one_is_in_service(&self, namespace: &str) {
        for pod in self.for_others.lock().iter().filter(|pod| pod.namespace == namespace) {
            self.call(pod);
        }
    }

    fn call(&self, pod: &PodKey) {
        // A line that is full is looked at anyway: whoever waits also has a time to look again.
        let _ = self.awake.try_send(ObjectRef::new(&pod.name).within(&pod.namespace));
    }

    /// Looks at `pod` again when the budget `name` has changed.
    pub(super) fn for_budget(&self, pod: &PodKey, name: &str) {
        let key = Watched::Budget { namespace: pod.namespace.clone(), name: name.to_owned() };
        let api: Api<PartialObjectMeta<PodDisruptionBudget>> =
            Api::namespaced(self.client.clone(), &pod.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let _ = self.add(key, pod, || {
            watcher(api, config).default_backoff().filter_map(|event| {
                let changed = matches!(event, Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)));
                std::future::ready(changed.then_some(()))
            })
        });
    }

    /// `pod` waits for nothing any more.
    pub(super) fn forget(&self, pod: &PodKey) {
        self.not_for_others(pod);
        self.watches.lock().retain(|_, watch| {
            watch.waiting.remove(pod);
            !watch.waiting.is_empty()
        });
    }

    fn add<S>(&self, key: Watched, pod: &PodKey, changes: impl FnOnce() -> S) -> Option<u64>
    where
        S: Stream<Item = ()> + Send + 'static,
    {
        let mut watches = self.watches.lock();
        if let Some(watch) = watches.get_mut(&key) {
            watch.waiting.insert(pod.clone());
            return None;
        }
        if watches.len() >= MOST {
            tracing::debug!(%pod, "too many owners and budgets are watched; this one is read when it counts");
            return None;
        }
        let call = call_awake(changes(), key.clone(), self.watches.clone(), self.awake.clone());
        let task = tokio::spawn(call).abort_handle();
        let version = next_version();
        watches.insert(key, Watch { version, waiting: HashSet::from([pod.clone()]), task });
        Some(version)
    }
}

async fn call_awake(
    changes: impl Stream<Item = ()>,
    key: Watched,
    watches: Watches,
    awake: mpsc::Sender<ObjectRef<CachedPod>>,
) {
    let mut changes = std::pin::pin!(changes);
    while let Some(()) = changes.next().await {
        let waiting: Vec<PodKey> = watches.lock().get_mut(&key).map_or_else(Vec::new, |watch| {
            watch.version = next_version();
            watch.waiting.iter().cloned().collect()
        });
        for pod in waiting {
            if awake.send(ObjectRef::new(&pod.name).within(&pod.namespace)).await.is_err() {
                return;
            }
        }
    }
}
