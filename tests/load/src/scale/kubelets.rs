//! What kubelets report: the statuses of nodes and pods. kwok renews the Leases of the nodes itself.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::stream::{self, Stream};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use podward_testbed::TestCluster;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use crate::fleet::MAX_CONCURRENT;

/// Returns a client whose user is in the group of the kubelets. The webhooks do not review its writes of statuses. It
/// is no kubelet for the API server, and may write to all pods and nodes.
pub(super) async fn client(cluster: &TestCluster) -> Result<Client> {
    let path = cluster.kubeconfig();
    let failed = || format!("use the kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).with_context(failed)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(failed)?;
    config.auth_info.impersonate = Some("load-kubelets".to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned(), "system:nodes".to_owned()]);
    Client::try_from(config).with_context(failed)
}

/// All kubelets of the cluster.
pub(super) struct Kubelets {
    nodes: Api<Node>,
    pods: Api<Pod>,
    node_names: Vec<String>,
    pod_names: Vec<String>,
}

/// The number of reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    /// Statuses of nodes.
    pub(super) nodes: usize,
    /// Statuses of pods.
    pub(super) pods: usize,
}

impl Kubelets {
    /// Returns the kubelets of all nodes, and of the pods `pod_names` in `namespace`. `client` is that of [`client`].
    pub(super) async fn new(client: &Client, namespace: &str, pod_names: Vec<String>) -> Result<Kubelets> {
        let nodes: Api<Node> = Api::all(client.clone());
        let found = nodes.list(&ListParams::default()).await.context("list nodes")?;
        let node_names = found.iter().map(ResourceExt::name_any).collect();
        Ok(Kubelets { nodes, pods: Api::namespaced(client.clone(), namespace), node_names, pod_names })
    }

    /// Writes the status of each node once in `node_interval`, and `pods_per_second` statuses of pods in turn, for
    /// `time`. Late writes are made up for, as far as the API server allows. Returns the numbers of writes.
    pub(super) async fn report(
        &self,
        node_interval: Duration,
        pods_per_second: u32,
        time: Duration,
    ) -> Result<Reports> {
        let end = Instant::now() + time;
        let between_nodes = node_interval / u32::try_from(self.node_names.len().max(1))?;
        let nodes = ticks(between_nodes, end)
            .zip(stream::iter(self.node_names.iter().cycle()))
            .map(async |((), name)| {
                let patch = heartbeat("Ready", "lastHeartbeatTime");
                let written = self.nodes.patch_status(name, &PatchParams::default(), &patch).await;
                written.map(drop).with_context(|| format!("write the status of node {name}"))
            })
            .buffer_unordered(MAX_CONCURRENT)
            .try_fold(0, async |count, ()| Ok(count + 1));
        let between_pods = Duration::from_secs(1).checked_div(pods_per_second);
        let pods = stream::iter(between_pods)
            .flat_map(|between| ticks(between, end))
            .zip(stream::iter(self.pod_names.iter().cycle()))
            .map(async |((), name)| {
                let patch = heartbeat("ContainersReady", "lastProbeTime");
                let written = self.pods.patch_status(name, &PatchParams::default(), &patch).await;
                written.map(drop).with_context(|| format!("write the status of pod {name}"))
            })
            .buffer_unordered(MAX_CONCURRENT)
            .try_fold(0, async |count, ()| Ok(count + 1));
        // Each stream ends with the first tick after the end.
        let (nodes, pods) = tokio::try_join!(nodes, pods)?;
        Ok(Reports { nodes, pods })
    }
}

/// Returns the patch of a status that sets `field` of the condition `name` to the current time, in seconds.
fn heartbeat(name: &str, field: &str) -> Patch<Value> {
    let now = jiff::Timestamp::now().to_string();
    Patch::Strategic(json!({"status": {"conditions": [{"type": name, field: now}]}}))
}

/// Returns a stream with an item at each tick before `end`. Missed ticks follow at once.
fn ticks(period: Duration, end: Instant) -> impl Stream<Item = ()> {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
    stream::unfold(interval, move |mut interval| async move {
        interval.tick().await;
        (Instant::now() < end).then_some(((), interval))
    })
}
