//! The simulated pods.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_support::{PodFeedEvent, WatchTask, observe, pods};
use serde_json::json;
use tokio::sync::watch;

use super::names::{DEADLINE, NAMESPACE};

/// The label that names the service of a pod.
pub(super) const SERVICE_LABEL: &str = "app";
/// The number of concurrent requests.
const MAX_CONCURRENT: usize = 50;

/// A pod that is Ready.
#[derive(Clone, Debug)]
pub(super) struct ReadyPod {
    /// When the watch has shown it Ready.
    pub(super) at: Instant,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) ip: String,
}

/// Pods without an owner, in a namespace of their own.
pub(super) struct BoundPods {
    pods: Api<Pod>,
    ready: watch::Receiver<HashMap<String, ReadyPod>>,
    _watching: WatchTask,
}

impl BoundPods {
    /// Creates the namespace.
    pub(super) async fn start(client: &Client) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        namespaces.create(&PostParams::default(), &object).await.context("make the namespace")?;
        let (sender, ready) = watch::channel(HashMap::new());
        let watching = observe(client.clone(), NAMESPACE, "", move |event| match event {
            PodFeedEvent::Version(pod) if pods::is_ready(&pod) => {
                let at = Instant::now();
                let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
                sender.send_if_modified(|ready| {
                    let name = pod.name_any();
                    let is_new = !ready.contains_key(&name);
                    let uid = pod.uid().unwrap_or_default();
                    ready.entry(name.clone()).or_insert(ReadyPod { at, name, uid, ip });
                    is_new
                });
            }
            PodFeedEvent::Gone(pod) => {
                sender.send_modify(|ready| drop(ready.remove(&pod.name_any())));
            }
            _ => {}
        })
        .await?;
        Ok(Self { pods: Api::namespaced(client.clone(), NAMESPACE), ready, _watching: watching })
    }

    /// Creates `count` pods, of which `of_service` belong to a service, and waits until all of them are Ready. Returns the
    /// time that it took, in seconds.
    pub(super) async fn make_services(&self, count: usize, of_service: usize) -> Result<f64> {
        let begun = Instant::now();
        futures::stream::iter(0..count)
            .map(|number| async move {
                let service = service(number / of_service);
                self.create(&format!("{service}-{}", number % of_service), &service).await
            })
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect::<()>()
            .await?;
        self.until(|ready| ready.len() >= count).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Creates a pod of a service.
    pub(super) async fn create(&self, name: &str, service: &str) -> Result<()> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {SERVICE_LABEL: service}},
            "spec": {"containers": [{
                "name": "server", "image": "podward.local/demo-server:v1", "ports": [{"containerPort": 8080}],
            }]},
        }))?;
        let made = self.pods.create(&PostParams::default(), &pod).await;
        made.map(drop).with_context(|| format!("make pod {name}"))
    }

    /// Waits until a pod is Ready.
    pub(super) async fn until_ready(&self, name: &str) -> Result<ReadyPod> {
        self.until(|ready| ready.contains_key(name)).await?;
        self.ready.borrow().get(name).cloned().with_context(|| format!("pod {name} is gone"))
    }

    /// Deletes a pod, and waits until it is gone.
    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        let deleted = self.pods.delete(name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete pod {name}"))?;
        self.until(|ready| !ready.contains_key(name)).await
    }

    async fn until(&self, test: impl Fn(&HashMap<String, ReadyPod>) -> bool) -> Result<()> {
        let mut ready = self.ready.clone();
        let waited = tokio::time::timeout(DEADLINE, ready.wait_for(|ready| test(ready))).await;
        waited.with_context(|| format!("waited {} s in vain for pods", DEADLINE.as_secs()))??;
        Ok(())
    }
}

/// Returns the name of a service.
pub(super) fn service(number: usize) -> String {
    format!("service-{number}")
}
