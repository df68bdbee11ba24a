//! One watch on the pods of a namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    pods,
    wait::{WAIT, within},
};

/// An event of a watch on pods.
#[derive(Debug)]
pub enum PodFeedEvent {
    /// A version of a pod: its first one, or a later one.
    Version(Box<Pod>),
    /// The last version of a pod that is gone.
    Gone(Box<Pod>),
    /// The watch lists the pods again. Versions and deletions may have been missed.
    Gap,
    /// The watch has listed the pods again. Only the pods with these UIDs still exist.
    Left(BTreeSet<String>),
}

/// A watch that runs until it is dropped.
#[derive(Debug)]
pub struct WatchTask(JoinHandle<()>);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls `on_event` with every version of the pods in `namespace` that match the label selector `selector`, in order.
/// An API server sends a watch every version that it stores, so that nothing is missed unless there is a
/// [`PodFeedEvent::Gap`].
///
/// # Errors
/// Fails if the existing pods could not be listed within [`WAIT`].
pub async fn observe(
    client: Client,
    namespace: &str,
    selector: &str,
    mut on_event: impl FnMut(PodFeedEvent) + Send + 'static,
) -> Result<WatchTask> {
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let (listed, first_list) = tokio::sync::oneshot::channel();
    let mut listed = Some(listed);
    let config = watcher::Config::default().labels(selector);
    let mut left: Option<BTreeSet<String>> = None;
    let work = async move {
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod)) => on_event(PodFeedEvent::Version(Box::new(pod))),
                Ok(watcher::Event::InitApply(pod)) => {
                    left.iter_mut().for_each(|left| left.extend(pod.uid()));
                    on_event(PodFeedEvent::Version(Box::new(pod)));
                }
                Ok(watcher::Event::Delete(pod)) => on_event(PodFeedEvent::Gone(Box::new(pod))),
                Ok(watcher::Event::Init) => {
                    if listed.is_none() {
                        left = Some(BTreeSet::new());
                        on_event(PodFeedEvent::Gap);
                    }
                }
                Ok(watcher::Event::InitDone) => {
                    left.take().into_iter().for_each(|left| on_event(PodFeedEvent::Left(left)));
                    if let Some(listed) = listed.take() {
                        let _ = listed.send(());
                    }
                }
                Err(error) => tracing::warn!(error = %error, "the watch on pods was interrupted"),
            }
        }
    };
    let watching = WatchTask(tokio::spawn(work));
    let what = || format!("the first list of pods in namespace {namespace}");
    within(WAIT, what, async { first_list.await.context("the watch on pods ended") }).await?;
    Ok(watching)
}

type LatestPods = BTreeMap<String, Arc<Pod>>;

/// The latest version of every pod, by name. It can wait for conditions on pods.
#[derive(Clone, Debug)]
pub struct PodFeed {
    api: Api<Pod>,
    namespace: String,
    latest: watch::Receiver<LatestPods>,
    _watching: Arc<WatchTask>,
}

impl PodFeed {
    /// Watches the pods of `namespace` that match `selector`. An empty selector matches all pods.
    ///
    /// # Errors
    /// See [`observe`].
    pub async fn start(client: Client, namespace: &str, selector: &str) -> Result<Self> {
        let (changes, latest) = watch::channel(LatestPods::new());
        let watching = observe(client.clone(), namespace, selector, move |seen| {
            changes.send_modify(|latest| match seen {
                PodFeedEvent::Version(pod) => drop(latest.insert(pod.name_any(), Arc::from(pod))),
                PodFeedEvent::Gone(pod) => drop(latest.remove(&pod.name_any())),
                PodFeedEvent::Gap => {}
                PodFeedEvent::Left(uids) => {
                    latest.retain(|_, pod| pod.uid().is_some_and(|uid| uids.contains(&uid)))
                }
            });
        });
        let watching = Arc::new(watching.await?);
        let api = Api::namespaced(client, namespace);
        Ok(Self { api, namespace: namespace.to_owned(), latest, _watching: watching })
    }

    /// Returns a client of the same cluster.
    #[must_use]
    pub fn client(&self) -> Client {
        self.api.clone().into_client()
    }

    /// Returns the pods' API in the watched namespace.
    #[must_use]
    pub fn api(&self) -> Api<Pod> {
        self.api.clone()
    }

    /// Returns the watched namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the latest version of the pod `name`, or `None` if it does not exist.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Pod>> {
        self.latest.borrow().get(name).cloned()
    }

    /// Returns the latest versions of all pods, sorted by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Pod>> {
        self.latest.borrow().values().cloned().collect()
    }

    /// Waits until a pod has changed since the last call, and returns the latest versions of all pods, sorted by name.
    ///
    /// # Errors
    /// Fails if the watch has ended.
    pub async fn changed(&mut self) -> Result<Vec<Arc<Pod>>> {
        let ended = || format!("the watch on the pods of namespace {} has ended", self.namespace);
        self.latest.changed().await.with_context(ended)?;
        Ok(self.latest.borrow_and_update().values().cloned().collect())
    }

    /// Waits until `test` is true for the pod `name`. `what` describes the condition in errors.
    ///
    /// # Errors
    /// Fails after [`WAIT`], with the latest state of the pod.
    pub async fn until(&self, name: &str, what: &str, test: impl FnMut(&Pod) -> bool) -> Result<Arc<Pod>> {
        self.until_within(WAIT, name, what, test).await
    }

    /// Like [`until`](Self::until), with another deadline.
    ///
    /// # Errors
    /// Fails after `deadline`, with the latest state of the pod.
    pub async fn until_within(
        &self,
        deadline: Duration,
        name: &str,
        what: &str,
        mut test: impl FnMut(&Pod) -> bool,
    ) -> Result<Arc<Pod>> {
        let mut latest = self.latest.clone();
        let found = latest.wait_for(|latest| latest.get(name).is_some_and(|pod| test(pod)));
        match tokio::time::timeout(deadline, found).await {
            Ok(Ok(latest)) => latest.get(name).cloned().ok_or_else(|| anyhow!("pod {name} is gone")),
            Ok(Err(_)) => Err(anyhow!("the watch on the pods of namespace {} has ended", self.namespace)),
            Err(_) => {
                let last = self
                    .get(name)
                    .map_or_else(|| "there is no such pod".to_owned(), |pod| pods::describe(&pod));
                let seconds = deadline.as_secs_f64();
                Err(anyhow!(
                    "pod {}/{name}: waited {seconds:.1} s in vain until {what}; last seen: {last}",
                    self.namespace
                ))
            }
        }
    }

    /// Waits until `test` is true for all pods, and returns them.
    ///
    /// # Errors
    /// Fails after [`WAIT`], with the existing pods.
    pub async fn until_pods(&self, what: &str, test: impl FnMut(&[&Pod]) -> bool) -> Result<Vec<Arc<Pod>>> {
        self.until_pods_within(WAIT, what, test).await
    }

    /// Like [`until_pods`](Self::until_pods), with another deadline.
    ///
    /// # Errors
    /// Fails after `deadline`, with the existing pods.
    pub async fn until_pods_within(
        &self,
        deadline: Duration,
        what: &str,
        mut test: impl FnMut(&[&Pod]) -> bool,
    ) -> Result<Vec<Arc<Pod>>> {
        let mut latest = self.latest.clone();
        let found = latest.wait_for(|latest| {
            let pods: Vec<&Pod> = latest.values().map(AsRef::as_ref).collect();
            test(&pods)
        });
        match tokio::time::timeout(deadline, found).await {
            Ok(Ok(latest)) => Ok(latest.values().cloned().collect()),
            Ok(Err(_)) => Err(anyhow!("the watch on the pods of namespace {} has ended", self.namespace)),
            Err(_) => {
                let seen: Vec<String> = self
                    .all()
                    .iter()
                    .map(|pod| format!("{}: {}", pod.name_any(), pods::describe(pod)))
                    .collect();
                let seconds = deadline.as_secs();
                Err(anyhow!(
                    "namespace {}: waited {seconds} s in vain until {what}; last seen:\n{}",
                    self.namespace,
                    seen.join("\n")
                ))
            }
        }
    }
}
