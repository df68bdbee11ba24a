//! Nodes that are not Ready, or gone.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{pod, until_first_line, until_said, write_status};
use crate::deletion::lost_node::ago;
use crate::deletion::own_nodes::OwnNode;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_a_node_is_not_ready", not_ready),
        Test::simulated("why_a_pod_does_not_end_on_a_lost_node", ends_on_lost_node),
        Test::simulated("why_a_node_does_not_exist", removed),
    ]
}

/// Creates a pod on a node without a kubelet.
async fn pod_on(fixture: &Fixture, node: &OwnNode<'_>, name: &str) -> Result<()> {
    let mut here = json!({});
    node.place(&mut here);
    pod(fixture, name, here, json!({})).await?;
    let has_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    fixture.feed().until(name, "it has a node", has_node).await.map(drop)
}

/// The condition is written by the test, as a kubelet without a network plugin does (pkg/kubelet/nodestatus/setters.go,
/// `ReadyCondition`; pkg/kubelet/kubelet.go, `updateRuntimeUp`). The taint of the node is the control plane's.
async fn not_ready(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "not-ready", 2, false).await?;
    node.report("True", &ago(0)).await?;
    pod_on(&fixture, &node, "web").await?;
    let text = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                message:Network plugin returns error: cni plugin not initialized";
    node.report_all(&[("Ready", "False", "KubeletNotReady", text)], &ago(3)).await?;
    let words = format!("its node {} is not Ready: {text}", node.name);
    let evidence = [
        format!("  node {}: Ready False (KubeletNotReady): {text}", node.name),
        "  taint node.kubernetes.io/not-ready: the pod is deleted in ".to_owned(),
    ];
    let said = until_said(&fixture, "web", &words, &evidence.each_ref().map(String::as_str)).await?;
    let next = format!("; next: kubectl describe node {}", node.name);
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    until_first_line(&fixture, &format!("node/{}", node.name), "Ready is False (").await?;
    // A condition without a message.
    node.report("False", &ago(3)).await?;
    until_first_line(&fixture, "web", &format!("its node {} is not Ready (", node.name)).await?;
    fixture.kubectl(&["delete", "pod", "web", "--grace-period=0", "--force"]).await?.succeeded()?;
    node.remove().await
}

/// No kubelet reports that the containers have ended. That they run is written by the test.
async fn ends_on_lost_node(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "lost", 2, false).await?;
    node.report("True", &ago(0)).await?;
    pod_on(&fixture, &node, "web").await?;
    let container = json!({
        "name": "server", "image": fixture.images().v1, "imageID": "", "ready": true, "started": true, "restartCount": 0,
        "state": {"running": {"startedAt": ago(60)}},
    });
    write_status(&fixture, "web", json!({"phase": "Running", "containerStatuses": [container]})).await?;
    node.report("Unknown", &ago(120)).await?;
    fixture.kubectl(&["delete", "pod", "web", "--wait=false"]).await?.succeeded()?;
    let words = format!("is being deleted, but its node {} does not report", node.name);
    let evidence = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    until_said(&fixture, "web", &words, &[evidence]).await?;
    fixture.kubectl(&["delete", "pod", "web", "--grace-period=0", "--force"]).await?.succeeded()?;
    node.remove().await
}

/// The garbage collector of pods takes its time.
async fn removed(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "gone", 2, false).await?;
    node.report("True", &ago(0)).await?;
    pod_on(&fixture, &node, "web").await?;
    let name = node.name.clone();
    node.remove().await?;
    until_first_line(&fixture, "web", &format!("its node {name} does not exist any more")).await.map(drop)
}
