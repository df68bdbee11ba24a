//! Pods of a node that is lost.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use podward_core::{ConditionStatus, UnixNanos, keys};
use podward_e2e::{CONSUMER, Scene, Test};
use podward_support::{Behaviour, TrafficLoop, pods};
use serde_json::json;

use super::{
    made::{is_wished, until_gone, until_leaving},
    neighbours::OwnNode,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("pods_of_a_lost_node_are_given_up", pods_of_a_lost_node_are_given_up)]
}

/// For a while deletes are held; past the limit those that are held are carried out, the cluster's are let through, and consumers are
/// told to forget the pods. The test plays the kubelet until it is lost.
async fn pods_of_a_lost_node_are_given_up(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let node = OwnNode::make(&scene, "lost", 100, false).await?;
    node.report("True", &ago(0)).await?;
    for name in ["kept", "evicted"] {
        create(&scene, &node, name).await?;
    }
    traffic.behave(Behaviour::HOLDS);
    node.report("False", &ago(1)).await?;
    scene.kubectl(&["delete", "pod", "kept", "--wait=false"]).await?.was_held(&[traffic.finalizer()])?;
    until_leaving(&scene, "kept").await?;

    node.report("Unknown", &ago(120)).await?;
    // Deleted by the cluster, whose taints follow the node's condition.
    let deleted = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    scene.feed().until("evicted", "it is being deleted", deleted).await?;
    // Nobody asks again for what was wished before.
    let kept = scene.feed().until("kept", "it is being deleted", deleted).await?;
    ensure!(pods::holders(&kept).next().is_some(), "it is being deleted, and nobody was to be told");
    traffic.behave(Behaviour::PROMPT);
    for name in ["kept", "evicted"] {
        let free = |pod: &Pod| pods::holders(pod).next().is_none();
        scene.feed().until(name, "its consumers have let go", free).await?;
        // No kubelet will ever say that it has ended.
        scene.kubectl(&["delete", "pod", name, "--grace-period=0", "--force"]).await?.succeeded()?;
        until_gone(&scene, name).await?;
    }
    node.remove().await
}

/// A pod in service on the node. "evicted" is one that the cluster doesn't leave there for long.
async fn create(scene: &Scene, node: &OwnNode<'_>, name: &str) -> Result<()> {
    let mut spec = pods::server_spec(&scene.images().v1);
    node.place(&mut spec);
    if let Some(tolerations) = spec["tolerations"].as_array_mut() {
        for taint in ["not-ready", "unreachable"] {
            let mut toleration = json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute"});
            if name == "evicted" && taint == "unreachable" {
                toleration["tolerationSeconds"] = json!(1);
            }
            tolerations.push(toleration);
        }
    }
    let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {
            "name": name,
            "labels": {keys::CONTROL_LABEL: keys::CONTROL_VALUE},
            "annotations": {keys::AVAILABLE_CONDITIONS: expected},
        },
    });
    let api = scene.api();
    api.create(&PostParams::default(), &serde_json::from_value(pod)?).await.context("make a pod")?;
    let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    scene.feed().until(name, "it has a node", is_bound).await?;
    let started = json!({"status": {"phase": "Running", "conditions": [{"type": "ContainersReady", "status": "True"}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(started)).await?;
    let gate_is_on =
        |pod: &Pod| pods::condition(pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::True);
    scene.feed().until(name, "its gate is on", gate_is_on).await?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await?;
    scene.until_available(name).await?;
    let pod = scene.feed().get(name).context("the pod is gone")?;
    ensure!(!is_wished(&pod), "somebody wishes it gone already");
    Ok(())
}

/// So many seconds ago.
fn ago(seconds: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = since.saturating_sub(Duration::from_secs(seconds)).as_secs();
    UnixNanos(i64::try_from(then).unwrap_or_default().saturating_mul(1_000_000_000)).to_rfc3339()
}
