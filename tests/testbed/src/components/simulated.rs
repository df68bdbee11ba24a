//! Simulated nodes: kwok acts as the kubelets, with stages of this crate.
//!
//! The stages of kwok write the conditions of all readiness gates themselves. The stages of this crate leave the
//! gates to their owners.

use std::{collections::BTreeMap, fs};

use k8s_openapi::{
    api::core::v1::{Node, NodeStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::{Component, Context, NODE_IP, local};
use crate::error::{During, TestClusterError};

/// kwok manages the nodes that have this annotation.
const MANAGED: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

const STAGES: [&str; 2] = [include_str!("../../stages/nodes.yaml"), include_str!("../../stages/pods.yaml")];

/// Returns kwok.
pub(crate) fn kwok(context: Context<'_>) -> Result<Component, TestClusterError> {
    let stages = context.path("stages.yaml");
    fs::write(&stages, STAGES.join("---\n")).during(|| format!("write {}", stages.display()))?;
    let command = context.command("kwok").args([
        format!("--kubeconfig={}", context.pki("kwok.kubeconfig")),
        format!("--config={}", stages.display()),
        "--manage-all-nodes=false".to_owned(),
        format!("--manage-nodes-with-annotation-selector={}={}", MANAGED.0, MANAGED.1),
        format!("--node-ip={NODE_IP}"),
        "--node-lease-duration-seconds=40".to_owned(),
        // Room for a million pods, apart from the addresses of nodes and Services.
        "--cidr=10.128.0.0/12".to_owned(),
        "--server-address=127.0.0.1:10247".to_owned(),
    ]);
    Ok(Component::control(command, local(10247, false, "/healthz")))
}

/// Returns the name of a simulated node.
pub(crate) fn node_name(index: usize) -> String {
    format!("simulated-{index}")
}

/// Creates the nodes, each with room for 1,000 pods.
pub(crate) async fn create_nodes(client: Client, count: usize) -> Result<(), TestClusterError> {
    let nodes: Api<Node> = Api::all(client);
    let creating = (0..count).map(|index| {
        let (nodes, name) = (&nodes, node_name(index));
        async move {
            let created = nodes.create(&PostParams::default(), &node(&name)).await;
            created.map(drop).during(|| format!("create the simulated node {name}"))
        }
    });
    futures::future::try_join_all(creating).await.map(drop)
}

fn node(name: &str) -> Node {
    let room: BTreeMap<String, Quantity> = [("cpu", "1k"), ("memory", "1Ti"), ("pods", "1000")]
        .map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned())))
        .into();
    let labels =
        [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            annotations: Some([(MANAGED.0.to_owned(), MANAGED.1.to_owned())].into()),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            allocatable: Some(room.clone()),
            capacity: Some(room),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}
