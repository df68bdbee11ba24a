//! Pods of a node that is lost.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use podward_core::{ConditionStatus, UnixNanos, keys};
use podward_e2e::{CONSUMER, Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficLoop, pods};
use serde_json::json;

use super::{
    objects::{is_delete_requested, until_gone, until_leaving},
    own_nodes::OwnNode,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("pods_of_a_lost_node_are_deleted", pods_of_a_lost_node_are_deleted)]
}

/// Deletes are held for a while, also those of the cluster. After the limit, held deletes are executed, deletes of the
/// cluster are allowed, and consumers get RELEASE. The test acts as the kubelet until the node is lost.
async fn pods_of_a_lost_node_are_deleted(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let node = OwnNode::make(&fixture, "lost", 100, false).await?;
    node.report("True", &ago(0)).await?;
    for name in ["kept", "evicted", "late"] {
        create(&fixture, &node, name).await?;
    }
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    node.report("False", &ago(1)).await?;
    fixture.kubectl(&["delete", "pod", "kept", "--wait=false"]).await?.was_held(&[traffic.finalizer()])?;
    until_leaving(&fixture, "kept").await?;

    // The cluster deletes, too: its taints follow the node's condition.
    node.report("Unknown", &ago(1)).await?;
    let held = until_leaving(&fixture, "evicted").await?;
    ensure!(held.metadata.deletion_timestamp.is_none(), "{}", pods::describe(&held));

    node.report("Unknown", &ago(120)).await?;
    let deleted = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    // No client repeats the earlier deletes.
    for name in ["kept", "evicted"] {
        let pod = fixture.feed().until(name, "it is being deleted", deleted).await?;
        ensure!(pods::holders(&pod).next().is_some(), "it is being deleted without its consumers");
    }
    tolerate(&fixture, "late", 1).await?;
    let late = fixture.feed().until("late", "it is being deleted", deleted).await?;
    ensure!(!is_delete_requested(&late), "its delete was held: {}", pods::describe(&late));
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    for name in ["kept", "evicted", "late"] {
        let free = |pod: &Pod| pods::holders(pod).next().is_none();
        fixture.feed().until(name, "its consumers have released it", free).await?;
        // No kubelet will ever report that it has ended.
        fixture.kubectl(&["delete", "pod", name, "--grace-period=0", "--force"]).await?.succeeded()?;
        until_gone(&fixture, name).await?;
    }
    node.remove().await
}

/// Creates an available pod on the node. The cluster evicts the pod "evicted" soon.
async fn create(fixture: &Fixture, node: &OwnNode<'_>, name: &str) -> Result<()> {
    let mut spec = pods::server_spec(&fixture.images().v1);
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
    let api = fixture.api();
    api.create(&PostParams::default(), &serde_json::from_value(pod)?).await.context("make a pod")?;
    let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    fixture.feed().until(name, "it has a node", is_bound).await?;
    let started = json!({"status": {"phase": "Running", "conditions": [{"type": "ContainersReady", "status": "True"}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(started)).await?;
    let gate_is_on =
        |pod: &Pod| pods::condition(pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::True);
    fixture.feed().until(name, "its gate is on", gate_is_on).await?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await?;
    fixture.until_available(name).await?;
    let pod = fixture.feed().get(name).context("the pod is gone")?;
    ensure!(!is_delete_requested(&pod), "its deletion is already requested");
    Ok(())
}

/// Changes for how long the pod stays on a node that is unreachable.
async fn tolerate(fixture: &Fixture, name: &str, seconds: u32) -> Result<()> {
    let pod = fixture.feed().get(name).with_context(|| format!("pod {name} is gone"))?;
    let mut tolerations = serde_json::to_value(pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()))?;
    let all = tolerations.as_array_mut().context("the pod tolerates nothing")?;
    for toleration in all.iter_mut().filter(|it| it["key"] == "node.kubernetes.io/unreachable") {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    let patch = Patch::Merge(json!({"spec": {"tolerations": tolerations}}));
    let patched = fixture.api().patch(name, &PatchParams::default(), &patch).await;
    patched.map(drop).with_context(|| format!("change the tolerations of pod {name}"))
}

/// Returns the time that many seconds ago.
pub(crate) fn ago(seconds: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = since.saturating_sub(Duration::from_secs(seconds)).as_secs();
    UnixNanos(i64::try_from(then).unwrap_or_default().saturating_mul(1_000_000_000)).to_rfc3339()
}
