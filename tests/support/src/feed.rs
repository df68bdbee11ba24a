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

/// What a watch tells.
#[derive(Debug)]
pub enum Seen {
    /// A version of a pod: its first, or one more.
    Version(Box<Pod>),
    /// A pod is gone; this was its last version.
    Gone(Box<Pod>),
    /// The watch had to list anew: versions may have been missed, and ends.
    Gap,
    /// It has listed anew: of the pods so far only those with these UIDs are still there.
    Left(BTreeSet<String>),
}

/// A watch that goes on until this is dropped.
#[derive(Debug)]
pub struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells `eyes` every version of the pods in `namespace` that match the label selector `selector`, in order. An API server
/// gives a watch every version that it stores, so nothing is missed unless [`Seen::Gap`] says so.
///
/// # Errors
/// When the pods that are there already could not be listed within [`WAIT`].
pub async fn observe(
    client: Client,
    namespace: &str,
    selector: &str,
    mut eyes: impl FnMut(Seen) + Send + 'static,
) -> Result<Watching> {
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let (listed, first_list) = tokio::sync::oneshot::channel();
    let mut listed = Some(listed);
    let config = watcher::Config::default().labels(selector);
    let mut left: Option<BTreeSet<String>> = None;
    let work = async move {
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod)) => eyes(Seen::Version(Box::new(pod))),
                Ok(watcher::Event::InitApply(pod)) => {
                    left.iter_mut().for_each(|left| left.extend(pod.uid()));
                    eyes(Seen::Version(Box::new(pod)));
                }
                Ok(watcher::Event::Delete(pod)) => eyes(Seen::Gone(Box::new(pod))),
                Ok(watcher::Event::Init) => {
                    if listed.is_none() {
                        left = Some(BTreeSet::new());
                        eyes(Seen::Gap);
                    }
                }
                Ok(watcher::Event::InitDone) => {
                    left.take().into_iter().for_each(|left| eyes(Seen::Left(left)));
                    if let Some(listed) = listed.take() {
                        let _ = listed.send(());
                    }
                }
                Err(error) => tracing::warn!(error = %error, "the watch on pods was interrupted"),
            }
        }
    };
    let watching = Watching(tokio::spawn(work));
    let what = || format!("the first list of pods in namespace {namespace}");
    within(WAIT, what, async { first_list.await.context("the watch on pods ended") }).await?;
    Ok(watching)
}

type Latest = BTreeMap<String, Arc<Pod>>;

/// The latest version of every pod, by name, and waits on what becomes of them.
#[derive(Clone, Debug)]
pub struct PodFeed {
    api: Api<Pod>,
    namespace: String,
    latest: watch::Receiver<Latest>,
    _watching: Arc<Watching>,
}

impl PodFeed {
    /// Watches the pods of `namespace` that match `selector`; an empty selector takes all.
    ///
    /// # Errors
    /// See [`observe`].
    pub async fn start(client: Client, namespace: &str, selector: &str) -> Result<Self> {
        let (changes, latest) = watch::channel(Latest::new());
        let watching = observe(client.clone(), namespace, selector, move |seen| {
            changes.send_modify(|latest| match seen {
                Seen::Version(pod) => drop(latest.insert(pod.name_any(), Arc::from(pod))),
                Seen::Gone(pod) => drop(latest.remove(&pod.name_any())),
                Seen::Gap => {}
                Seen::Left(uids) => latest.retain(|_, pod| pod.uid().is_some_and(|uid| uids.contains(&uid))),
            });
        });
        let watching = Arc::new(watching.await?);
        let api = Api::namespaced(client, namespace);
        Ok(Self { api, namespace: namespace.to_owned(), latest, _watching: watching })
    }

    /// A client of the same cluster.
    #[must_use]
    pub fn client(&self) -> Client {
        self.api.clone().into_client()
    }

    /// The pods' API in the watched namespace.
    #[must_use]
    pub fn api(&self) -> Api<Pod> {
        self.api.clone()
    }

    /// The watched namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The latest version of the pod `name`, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Pod>> {
        self.latest.borrow().get(name).cloned()
    }

    /// The latest versions of all pods, in the order of their names.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Pod>> {
        self.latest.borrow().values().cloned().collect()
    }

    /// Waits until the pod `name` is as `test` wants it. `what` says that in words, for the error.
    ///
    /// # Errors
    /// After [`WAIT`], with the pod as it was last seen.
    pub async fn until(&self, name: &str, what: &str, test: impl FnMut(&Pod) -> bool) -> Result<Arc<Pod>> {
        self.until_within(WAIT, name, what, test).await
    }

    /// [`until`](Self::until) with a deadline of one's own.
    ///
    /// # Errors
    /// After `deadline`, with the pod as it was last seen.
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

    /// Waits until `test` holds for the pods as a whole, and gives them.
    ///
    /// # Errors
    /// After [`WAIT`], with what is there.
    pub async fn until_pods(&self, what: &str, test: impl FnMut(&[&Pod]) -> bool) -> Result<Vec<Arc<Pod>>> {
        self.until_pods_within(WAIT, what, test).await
    }

    /// [`until_pods`](Self::until_pods) with a deadline of one's own.
    ///
    /// # Errors
    /// After `deadline`, with what is there.
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
