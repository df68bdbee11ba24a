//! The nodes, and the pods on some of them, for all pods that are not scheduled.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Error, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::sync::OnceCell;

use crate::api::with_timeout;

/// The nodes whose pods are read.
const NODES: usize = 20;

/// All nodes, and the pods of some.
pub(super) type NodesAndPods = (Arc<Vec<Node>>, Arc<BTreeMap<String, Vec<Pod>>>);

/// Read when they are needed first.
#[derive(Default)]
pub(super) struct SharedNodes(OnceCell<Result<NodesAndPods, String>>);

impl SharedNodes {
    /// # Errors
    /// When the nodes cannot be listed. The pods of a node that cannot be read are left out.
    pub(super) async fn read(&self, client: &Client) -> Result<NodesAndPods> {
        let read = self.0.get_or_init(|| async { list(client).await.map_err(|error| format!("{error:#}")) });
        read.await.clone().map_err(Error::msg)
    }
}

async fn list(client: &Client) -> Result<NodesAndPods> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = with_timeout(nodes.list(&ListParams::default())).await?.items;
    let pods: Api<Pod> = Api::all(client.clone());
    let read = nodes.iter().take(NODES).map(ResourceExt::name_any).map(async |name| {
        let params = ListParams::default().fields(&format!("spec.nodeName={name}"));
        Some((name, with_timeout(pods.list(&params)).await.ok()?.items))
    });
    let pods = join_all(read).await.into_iter().flatten().collect();
    Ok((Arc::new(nodes), Arc::new(pods)))
}
