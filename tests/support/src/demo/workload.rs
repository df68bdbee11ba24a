//! The Deployment and the Service of the demo.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Service},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use podward_core::keys;
use serde_json::{Value, json};

use crate::{feed::PodFeed, pods};

pub(super) const NAMESPACE: &str = "podward-demo";
pub(super) const SELECTOR: &str = "app=web";
/// Whom the traffic loop sends traffic for.
pub(super) const CONSUMER: &str = "demo-traffic";
pub(super) const REPLICAS: usize = 6;
const NAME: &str = "web";
const FIELD_MANAGER: &str = "podward-demo";

pub(super) struct Workload {
    pub(super) client: Client,
    pub(super) image: String,
}

impl Workload {
    pub(super) async fn create_namespace(&self) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        self.apply(&Api::<Namespace>::all(self.client.clone()), NAMESPACE, &namespace).await
    }

    /// Makes Service and Deployment; its pods expect `finalizer` before they count as available.
    pub(super) async fn deploy(&self, finalizer: &str) -> Result<()> {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            "spec": {"selector": {"app": NAME}, "ports": [{"port": 80, "targetPort": 8080}]},
        });
        self.apply(&Api::<Service>::namespaced(self.client.clone(), NAMESPACE), NAME, &service).await?;
        let expected = pods::expecting(&format!("Service/{NAMESPACE}/{NAME}"), finalizer);
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME},
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": {"app": NAME}},
                "template": {
                    "metadata": {
                        "labels": {"app": NAME, keys::CONTROL_LABEL: keys::CONTROL_VALUE},
                        "annotations": {keys::AVAILABLE_CONDITIONS: expected},
                    },
                    "spec": pods::server_spec(&self.image),
                },
            },
        });
        self.apply(&Api::<Deployment>::namespaced(self.client.clone(), NAMESPACE), NAME, &deployment).await
    }

    /// Waits until all pods are available and gives their names.
    pub(super) async fn until_available(&self, feed: &PodFeed) -> Result<Vec<String>> {
        let all = |pods: &[&Pod]| pods.len() == REPLICAS && pods.iter().all(|pod| pods::is_available(pod));
        let pods: Vec<Arc<Pod>> = feed.until_pods(&format!("{REPLICAS} pods are available"), all).await?;
        Ok(pods.iter().map(|pod| pod.name_any()).collect())
    }

    /// Takes everything away, while the traffic loop still lets pods go.
    pub(super) async fn remove(&self, feed: &PodFeed) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let removed = namespaces.delete(NAMESPACE, &DeleteParams::default()).await;
        removed.with_context(|| format!("delete the namespace {NAMESPACE}"))?;
        feed.until_pods("all pods are gone", |pods| pods.is_empty()).await.map(drop)
    }

    async fn apply<K>(&self, api: &Api<K>, name: &str, object: &Value) -> Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
        applied.map(drop).with_context(|| format!("apply {} {NAMESPACE}/{name}", object["kind"]))
    }
}
