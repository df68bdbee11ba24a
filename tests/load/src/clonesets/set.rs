//! A CloneSet in a namespace of its own, and the states of its pods.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_api::CloneSet;
use podward_core::cloneset::keys::STATE_LABEL;
use podward_support::markers::{BLOCKS_DELETE, BLOCKS_UPDATE};
use podward_support::{PodFeedEvent, WatchTask, observe, pods};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::operator::{self, Operator};

const NAME: &str = "web";
const IMAGE: &str = "podward.local/demo-server";
/// The number of concurrent creates of the client, as of the controller.
const MAX_CONCURRENT: usize = 32;
const QUIET: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(600);

/// What is known of a pod.
#[derive(Clone)]
struct Seen {
    is_normal: bool,
    is_ready: bool,
    image: String,
}

/// A CloneSet whose pods are watched.
pub(super) struct BenchSet {
    api: Api<CloneSet>,
    pods: watch::Receiver<HashMap<String, Seen>>,
    _watching: WatchTask,
    _operator: Option<Operator>,
}

async fn namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &object).await.context("create the namespace")?;
    Ok(())
}

fn pod_spec(version: &str) -> Value {
    json!({"containers": [{"name": "server", "image": format!("{IMAGE}:{version}")}]})
}

/// Creates pods without a set, and returns the time in seconds. They are deleted afterwards.
pub(super) async fn create_bare(client: &Client, name: &str, count: usize) -> Result<f64> {
    namespace(client, name).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), name);
    let begun = Instant::now();
    let create = |number: usize| {
        let pods = pods.clone();
        async move {
            let metadata = json!({"name": format!("bare-{number}"), "labels": {"app": "bare"}});
            let pod = serde_json::from_value(json!({"metadata": metadata, "spec": pod_spec("v1")}))?;
            pods.create(&PostParams::default(), &pod).await.context("create a pod")?;
            anyhow::Ok(())
        }
    };
    futures::stream::iter((0..count).map(create))
        .buffer_unordered(MAX_CONCURRENT)
        .try_collect::<()>()
        .await?;
    let seconds = begun.elapsed().as_secs_f64();
    pods.delete_collection(&DeleteParams::default().grace_period(0), &Default::default())
        .await
        .context("delete the pods")?;
    tokio::time::sleep(QUIET).await;
    Ok(seconds)
}

impl BenchSet {
    /// Creates an empty set in a new namespace. With `hooks`, an operator answers them at once.
    pub(super) async fn create(client: &Client, name: &str, hooks: bool) -> Result<Self> {
        namespace(client, name).await?;
        let (sender, states) = watch::channel(HashMap::new());
        let watching = observe(client.clone(), name, "", move |event| match event {
            PodFeedEvent::Version(pod) => sender.send_modify(|seen| {
                seen.insert(pod.name_any(), of(&pod));
            }),
            PodFeedEvent::Gone(pod) => sender.send_modify(|seen| {
                seen.remove(&pod.name_any());
            }),
            PodFeedEvent::Gap | PodFeedEvent::Left(_) => {}
        });
        let watching = watching.await?;
        let operator = match hooks {
            true => Some(operator::start(client.clone(), name).await?),
            false => None,
        };
        let labels = json!({"app": "web", BLOCKS_UPDATE: "true", BLOCKS_DELETE: "true"});
        let lifecycle = json!({
            "inPlaceUpdate": {"labelsHandler": {BLOCKS_UPDATE: "true"}},
            "preDelete": {"labelsHandler": {BLOCKS_DELETE: "true"}},
        });
        let set: CloneSet = serde_json::from_value(json!({
            "metadata": {"name": NAME},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec("v1")},
                "updateStrategy": {"type": "InPlaceIfPossible", "maxUnavailable": "100%"},
                "lifecycle": if hooks { lifecycle } else { Value::Null },
            },
        }))?;
        let api: Api<CloneSet> = Api::namespaced(client.clone(), name);
        api.create(&PostParams::default(), &set).await.context("create the CloneSet")?;
        Ok(Self { api, pods: states, _watching: watching, _operator: operator })
    }

    pub(super) async fn scale(&self, replicas: usize) -> Result<()> {
        self.patch(json!({"replicas": replicas})).await
    }

    pub(super) async fn update(&self, version: &str) -> Result<()> {
        self.patch(json!({"template": {"spec": pod_spec(version)}})).await
    }

    async fn patch(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api.patch(NAME, &PatchParams::default(), &patch).await.context("patch the CloneSet")?;
        Ok(())
    }

    /// Deletes the set, and waits until its pods are gone.
    pub(super) async fn delete(&self) -> Result<()> {
        self.api.delete(NAME, &DeleteParams::background()).await.context("delete the CloneSet")?;
        self.until("the pods are gone", HashMap::is_empty).await?;
        tokio::time::sleep(QUIET).await;
        Ok(())
    }

    pub(super) async fn until_exist(&self, count: usize) -> Result<()> {
        self.until("all pods exist", |seen| seen.len() >= count).await
    }

    /// Waits until there are so many pods, all of them Normal and Ready.
    pub(super) async fn until_normal(&self, count: usize) -> Result<()> {
        let test = |seen: &HashMap<String, Seen>| {
            seen.len() == count && seen.values().all(|pod| pod.is_normal && pod.is_ready)
        };
        self.until("all pods are Normal and Ready", test).await
    }

    pub(super) async fn until_updated(&self, count: usize, version: &str) -> Result<()> {
        let image = format!("{IMAGE}:{version}");
        let test = |seen: &HashMap<String, Seen>| {
            seen.len() == count
                && seen.values().all(|pod| pod.is_normal && pod.is_ready && pod.image == image)
        };
        self.until("all pods are updated", test).await
    }

    /// Waits until no pod has changed for some seconds.
    pub(super) async fn settle(&self) {
        let mut pods = self.pods.clone();
        while tokio::time::timeout(QUIET, pods.changed()).await.is_ok() {
            pods.mark_unchanged();
        }
    }

    async fn until(&self, what: &str, test: impl Fn(&HashMap<String, Seen>) -> bool) -> Result<()> {
        let mut pods = self.pods.clone();
        match tokio::time::timeout(DEADLINE, pods.wait_for(|seen| test(seen))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(anyhow!("the watch on pods has ended")),
            Err(_) => Err(anyhow!("waited {} s in vain until {what}", DEADLINE.as_secs())),
        }
    }
}

fn of(pod: &Pod) -> Seen {
    Seen {
        is_normal: pod.labels().get(STATE_LABEL).is_some_and(|state| state == "Normal"),
        is_ready: pods::is_ready(pod),
        image: pods::container(pod).map(|container| container.image.clone()).unwrap_or_default(),
    }
}
