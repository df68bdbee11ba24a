//! Watches of single owners and budgets. Each watch exists only while a pod waits for the object.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use podward_core::deletion::Workload;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use podward_kube_util::owners::{Owner, resource_of, wants};
use podward_kube_util::{CachedPod, PodKey};

use crate::budgets::BudgetVersion;
use crate::waiting_rollouts::{WaitingRollout, WaitingRollouts};

/// The maximum number of watches. Each is an open request. Objects beyond this number are not watched: pods that wait
/// for them are reconciled at their next wake-up, and decisions still read the object.
const MAX_WATCHES: usize = 200;
/// The maximum number of queued pods. The queue of the controller, which holds each pod once, drains this queue.
const MAX_QUEUED: usize = 10_000;

/// An object that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WatchedObject {
    Owner { uid: String },
    Budget { namespace: String, name: String },
}

struct ObjectWatch {
    /// Changes with every change of the object.
    version: u64,
    waiting: HashSet<PodKey>,
    task: AbortHandle,
}

impl Drop for ObjectWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Watches = Mutex<HashMap<WatchedObject, ObjectWatch>>;

/// The pods that wait for owners, budgets or other pods, and the watches for them.
pub(crate) struct WaitingPods {
    client: Client,
    /// Watches do not keep the map: they end with it.
    watches: Arc<Watches>,
    /// The pods that wait until other pods are in service, see [`WaitingPods::wait_for_others`].
    for_others: Mutex<WaitingRollouts>,
    wakeups: mpsc::Sender<ObjectRef<CachedPod>>,
}

/// Returns a number that was never returned before, so that a new watch differs from an ended watch of the same object.
fn next_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Returns `workload` without the number of pods that a Job reports: it changes often, and requests that are recorded do not
/// depend on it.
fn without_reports(workload: Workload) -> Workload {
    match workload {
        Workload::Job { wanted, restart_limit, .. } => Workload::Job { wanted, reported: 0, restart_limit },
        other => other,
    }
}

impl WaitingPods {
    /// Returns an empty set of watches, and a stream of the pods to reconcile because the object for which they wait
    /// has changed.
    pub(crate) fn new(client: Client) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let (wakeups, mut pods) = mpsc::channel(MAX_QUEUED);
        let stream = futures::stream::poll_fn(move |context| pods.poll_recv(context));
        (WaitingPods { client, watches: Arc::default(), for_others: Mutex::default(), wakeups }, stream)
    }

    /// Returns a number that is the same as long as the owner `uid` is watched and wants the same number of pods.
    /// Returns `None` if the owner is not watched.
    pub(crate) fn version(&self, uid: &str) -> Option<u64> {
        let key = WatchedObject::Owner { uid: uid.to_owned() };
        self.watches.lock().get(&key).map(|watch| watch.version)
    }

    /// Reports `pod` again when the wanted number of pods of `owner` differs from `wanted`. Returns the first version
    /// if the owner was not watched before.
    pub(crate) fn wait_for_owner(
        &self,
        pod: &PodKey,
        owner: &OwnerReference,
        wanted: &Workload,
    ) -> Option<u64> {
        let resource = resource_of(owner)?;
        let key = WatchedObject::Owner { uid: owner.uid.clone() };
        let (owner, mut last) = (owner.clone(), without_reports(wanted.clone()));
        let api: Api<Owner> = Api::namespaced_with(self.client.clone(), &pod.namespace, &resource);
        self.add(key, pod, || {
            let config = watcher::Config::default().fields(&format!("metadata.name={}", owner.name));
            watcher(api, config).default_backoff().filter_map(move |event| {
                let wants = match event {
                    Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                        Some(without_reports(wants(&found, &owner, Timestamp::now())))
                    }
                    Ok(watcher::Event::Delete(_)) => Some(Workload::Ending),
                    _ => None,
                };
                let changed = wants.filter(|wants| *wants != last).map(|wants| last = wants);
                std::future::ready(changed)
            })
        })
    }

    /// Reports `pod` too when the owner `uid`, which is watched, changes. Reports it at once if the owner has changed
    /// since `version`.
    pub(crate) fn join_owner_wait(&self, pod: &PodKey, uid: &str, version: Option<u64>) {
        let key = WatchedObject::Owner { uid: uid.to_owned() };
        if let Some(watch) = self.watches.lock().get_mut(&key) {
            watch.waiting.insert(pod.clone());
            if version != Some(watch.version) {
                self.wake(pod);
            }
        }
    }

    /// Reports the pods that wait for the owner `uid`, because one of its other pods is being deleted.
    pub(crate) fn wake_owner(&self, uid: &str) {
        let key = WatchedObject::Owner { uid: uid.to_owned() };
        for pod in self.watches.lock().get(&key).into_iter().flat_map(|watch| &watch.waiting) {
            self.wake(pod);
        }
    }

    /// Reports `pod` again when other pods of `rollout`, its Deployment, come into service.
    pub(crate) fn wait_for_others(&self, pod: &PodKey, rollout: &WaitingRollout) {
        self.for_others.lock().add(pod, rollout);
    }

    /// `pod` no longer waits for other pods.
    pub(crate) fn stop_waiting_for_others(&self, pod: &PodKey) {
        self.for_others.lock().remove(pod);
    }

    /// Reports some of the pods that wait for other pods, because `pod` of the same Deployment has come into service.
    pub(crate) fn wake_for_others(&self, pod: &CachedPod) {
        let woken = self.for_others.lock().next(&pod.key().namespace, pod.view().labels);
        for pod in woken {
            self.wake(&pod);
        }
    }

    fn wake(&self, pod: &PodKey) {
        // If the queue is full the report is dropped: each pod that waits is also reconciled after a time limit.
        let _ = self.wakeups.try_send(pod.object_ref());
    }

    /// Reports `pod` again when the budget differs from `read`, or is gone.
    pub(crate) fn wait_for_budget(&self, pod: &PodKey, read: &BudgetVersion) {
        let BudgetVersion { name, resource_version } = read.clone();
        let key = WatchedObject::Budget { namespace: pod.namespace.clone(), name: name.clone() };
        let api: Api<PartialObjectMeta<PodDisruptionBudget>> =
            Api::namespaced(self.client.clone(), &pod.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let _ = self.add(key, pod, || {
            let (mut last, mut is_listed) = (resource_version, false);
            watcher(api, config).default_backoff().filter_map(move |event| {
                let changed = match event {
                    Ok(watcher::Event::Init) => {
                        is_listed = false;
                        false
                    }
                    Ok(watcher::Event::InitApply(budget)) => {
                        is_listed = true;
                        let version = budget.resource_version();
                        let is_new = version != last;
                        last = version;
                        is_new
                    }
                    // It was deleted before the watch began.
                    Ok(watcher::Event::InitDone) => !is_listed,
                    Ok(watcher::Event::Apply(budget)) => {
                        last = budget.resource_version();
                        true
                    }
                    Ok(watcher::Event::Delete(_)) => true,
                    Err(_) => false,
                };
                std::future::ready(changed.then_some(()))
            })
        });
    }

    /// Ends all waits of `pod`, and the watches that no other pod needs. Returns whether it waited for an owner or a budget.
    pub(crate) fn forget(&self, pod: &PodKey) -> bool {
        self.stop_waiting_for_others(pod);
        let mut has_waited = false;
        self.watches.lock().retain(|_, watch| {
            has_waited |= watch.waiting.remove(pod);
            !watch.waiting.is_empty()
        });
        has_waited
    }

    fn add<S>(&self, key: WatchedObject, pod: &PodKey, changes: impl FnOnce() -> S) -> Option<u64>
    where
        S: Stream<Item = ()> + Send + 'static,
    {
        let mut watches = self.watches.lock();
        if let Some(watch) = watches.get_mut(&key) {
            watch.waiting.insert(pod.clone());
            return None;
        }
        if watches.len() >= MAX_WATCHES {
            tracing::debug!(%pod, "too many owners and budgets are watched; this one is only read for decisions");
            return None;
        }
        let report = wake_pods(changes(), key.clone(), Arc::downgrade(&self.watches), self.wakeups.clone());
        let task = tokio::spawn(report).abort_handle();
        let version = next_version();
        watches.insert(key, ObjectWatch { version, waiting: HashSet::from([pod.clone()]), task });
        Some(version)
    }
}

async fn wake_pods(
    changes: impl Stream<Item = ()>,
    key: WatchedObject,
    watches: Weak<Watches>,
    wakeups: mpsc::Sender<ObjectRef<CachedPod>>,
) {
    let mut changes = std::pin::pin!(changes);
    while let Some(()) = changes.next().await {
        let Some(watches) = watches.upgrade() else { return };
        let waiting: Vec<PodKey> = watches.lock().get_mut(&key).map_or_else(Vec::new, |watch| {
            watch.version = next_version();
            watch.waiting.iter().cloned().collect()
        });
        drop(watches);
        for pod in waiting {
            if wakeups.send(pod.object_ref()).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;
    use http::{Request, Response};
    use kube::client::Body;
    use podward_support::eventually;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that never answers. Each request has a clone of `open` until it is closed.
    fn client(open: Arc<()>) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let open = Arc::clone(&open);
            async move {
                let _open = open;
                std::future::pending::<Result<Response<Body>, Infallible>>().await
            }
        });
        Client::new(service, "shop")
    }

    #[tokio::test]
    async fn the_watches_end_with_their_owner() {
        let open = Arc::new(());
        let (waiting, wakeups) = WaitingPods::new(client(Arc::clone(&open)));
        let pod = PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned() };
        let budget = BudgetVersion { name: "web".to_owned(), resource_version: Some("1".to_owned()) };
        waiting.wait_for_budget(&pod, &budget);
        let until = async |count: usize| {
            let (what, is_met) = (|| format!("{count} clones"), || Arc::strong_count(&open) == count);
            eventually(Duration::from_secs(20), what, is_met).await.unwrap();
        };
        // The client has one.
        until(3).await;
        drop((waiting, wakeups));
        until(1).await;
    }

    /// A Job reports each change of its pods.
    #[tokio::test]
    async fn only_a_change_of_the_wanted_number_wakes_pods() {
        let job = |parallelism: u32, active: u32| {
            json!({
                "metadata": {"name": "work", "uid": "u", "resourceVersion": "1"},
                "spec": {"parallelism": parallelism}, "status": {"active": active},
            })
        };
        let changed = |job: Value| json!({"type": "MODIFIED", "object": job}).to_string();
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [job(2, 2)]}).to_string();
        let changes = [changed(job(2, 1)), changed(job(3, 1)), changed(job(3, 3))].join("\n");
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = match count.fetch_add(1, Ordering::SeqCst) {
                0 => Some(list.clone()),
                1 => Some(changes.clone()),
                _ => None,
            };
            async move {
                match answer {
                    Some(text) => Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes()))),
                    None => std::future::pending().await,
                }
            }
        });
        let (waiting, mut wakeups) = WaitingPods::new(Client::new(service, "shop"));
        let pod = PodKey { namespace: "shop".to_owned(), name: "work-0".to_owned() };
        let owner = OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: "work".to_owned(),
            uid: "u".to_owned(),
            ..OwnerReference::default()
        };
        let wanted = Workload::Job { wanted: 2, reported: 0, restart_limit: None };
        waiting.wait_for_owner(&pod, &owner, &wanted);
        // The third request comes after the changes.
        let (what, is_met) = (|| format!("{requests:?} requests"), || requests.load(Ordering::SeqCst) == 3);
        eventually(Duration::from_secs(20), what, is_met).await.unwrap();
        let mut woken = 0;
        while wakeups.next().now_or_never().flatten().is_some() {
            woken += 1;
        }
        assert_eq!(woken, 1);
    }
}
