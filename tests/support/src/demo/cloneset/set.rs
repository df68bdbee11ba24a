//! The CloneSet of an act, with the manifest of the articles about the protocol.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use podward_api::CloneSet;
use podward_core::cloneset::keys::STATE_LABEL;
use serde_json::{Value, json};

use super::super::act::Act;
use super::super::server::DemoServer;
use super::super::workload::{self, CPU_REQUEST, DemoWorkload, NAME};
use crate::feed::PodFeed;
use crate::markers::{BLOCKS_DELETE, BLOCKS_UPDATE, NEWLY_CREATE};
use crate::{Cluster, pods};

/// The number of pods.
pub(super) const REPLICAS: usize = 2;

/// A CloneSet whose pods have opted in.
pub(super) struct DemoSet(DemoWorkload);

impl DemoSet {
    /// Creates the namespace, the Service and the set.
    pub(super) async fn create(
        cluster: &Cluster,
        namespace: &str,
        image: &str,
        server: DemoServer,
        act: Act,
    ) -> Result<Self> {
        let feed = PodFeed::start(cluster.client(), namespace, workload::SELECTOR).await?;
        let set = Self(DemoWorkload {
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            server,
            opted_in: true,
            strategy: None,
            two_pods_on: None,
            removal_wait: Duration::ZERO,
            cpu_request: CPU_REQUEST,
            feed,
        });
        set.0.create_namespace().await?;
        set.0.create_service().await?;
        set.0.apply(&set.api(), NAME, &set.manifest(act)).await?;
        Ok(set)
    }

    fn manifest(&self, act: Act) -> Value {
        let mut template = self.0.template();
        template["metadata"]["labels"][BLOCKS_UPDATE] = json!("true");
        template["metadata"]["labels"][BLOCKS_DELETE] = json!("true");
        let strategy = match act {
            Act::RollingUpdate => json!({"type": "ReCreate", "maxSurge": 1, "maxUnavailable": 0}),
            _ => json!({"type": "InPlaceIfPossible", "maxUnavailable": 1}),
        };
        json!({
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "CloneSet",
            "metadata": {"name": NAME},
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": {"app": NAME}},
                "template": template,
                "updateStrategy": strategy,
                "lifecycle": {
                    "preNormal": {"labelsHandler": {NEWLY_CREATE: "true"}},
                    "inPlaceUpdate": {"labelsHandler": {BLOCKS_UPDATE: "true"}},
                    "preDelete": {"labelsHandler": {BLOCKS_DELETE: "true"}},
                },
            },
        })
    }

    pub(super) fn feed(&self) -> &PodFeed {
        &self.0.feed
    }

    pub(super) fn client(&self) -> Client {
        self.0.client()
    }

    fn api(&self) -> Api<CloneSet> {
        Api::namespaced(self.0.client(), &self.0.namespace)
    }

    /// Waits until there are `count` pods, all of them Normal and in service. Returns the address of the Service.
    pub(super) async fn until_in_service(&self, count: usize) -> Result<SocketAddr> {
        let serves = |pod: &&Pod| {
            self.0.serves(pod) && pod.labels().get(STATE_LABEL).is_some_and(|state| state == "Normal")
        };
        let all = |pods: &[&Pod]| pods.len() == count && pods.iter().all(serves);
        self.feed().until_pods_within(self.0.longest(), "all pods are Normal and in service", all).await?;
        self.0.address().await
    }

    /// Performs the act, and waits for its end.
    pub(super) async fn perform(&self, act: Act, image: &str) -> Result<()> {
        let names = || -> BTreeSet<String> { self.0.names().into_iter().collect() };
        let before = names();
        if act == Act::ScaleIn {
            self.patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 1}])).await?;
            return self.until_in_service(1).await.map(drop);
        }
        let path = "/spec/template/spec/containers/0/image";
        self.patch(json!([{"op": "replace", "path": path, "value": image}])).await?;
        let updated = |pod: &&&Pod| pods::container(pod).is_some_and(|container| container.image == image);
        let all = |pods: &[&Pod]| pods.iter().filter(updated).count() == REPLICAS && pods.len() == REPLICAS;
        self.feed().until_pods_within(self.0.longest(), "all pods are updated", all).await?;
        self.until_in_service(REPLICAS).await?;
        let same = before == names();
        ensure!(
            same == (act == Act::InPlaceUpdate),
            "{act}: the pods were {before:?}, and are {:?}",
            names()
        );
        Ok(())
    }

    async fn patch(&self, patch: Value) -> Result<()> {
        let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
        self.api().patch(NAME, &PatchParams::default(), &patch).await.context("patch the CloneSet")?;
        Ok(())
    }

    /// Removes everything. The set goes first: pods that are deleted with their namespace do not wait for it.
    pub(super) async fn remove(&self) -> Result<()> {
        self.0.remove().await
    }
}
