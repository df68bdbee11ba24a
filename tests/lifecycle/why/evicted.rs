//! Pods that the kubelet evicts.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{create, pod, until_first_line, write_status};
use super::sandboxes::busybox;
use crate::deletion::lost_node::ago;
use crate::deletion::own_nodes::OwnNode;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("why_a_pod_is_evicted_for_its_own_storage", own_storage),
        Test::simulated("why_a_pod_is_evicted_from_a_node_under_pressure", pressure),
    ]
}

/// It writes more to its volume than it may.
async fn own_storage(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let volume = json!({"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]});
    let mut writer = busybox("dd if=/dev/zero of=/data/file bs=1M count=4 && exec sleep 3600");
    writer["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod(&fixture, "writer", volume, writer).await?;
    let words =
        "the kubelet of node node1 evicted it: Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\".";
    let said = until_first_line(&fixture, "writer", words).await?;
    let next = format!("; next: kubectl -n {} describe pod writer", fixture.namespace());
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    ensure!(!said.contains("unable to retrieve"), "{said}");
    Ok(())
}

/// The part of the kubelet is written by the test: pressure on a real node would evict the pods of others. The texts are
/// those of the kubelet (pkg/kubelet/eviction/helpers.go, `nodeLowMessageFmt`, `thresholdMetMessageFmt` and
/// `containerMessageFmt`; pkg/kubelet/nodestatus/setters.go, `MemoryPressureCondition`). The taint of the node is the
/// control plane's.
async fn pressure(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "small", 4, false).await?;
    let ready = ("Ready", "True", "KubeletReady", "kubelet is posting ready status");
    node.report_all(&[ready], &ago(60)).await?;
    let mut here = json!({});
    node.place(&mut here);
    pod(&fixture, "evicted", here.clone(), json!({})).await?;
    let has_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    fixture.feed().until("evicted", "it has a node", has_node).await?;
    let text = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 48Mi. Container server was \
                using 912Mi, request is 0, has larger consumption of memory. ";
    let target = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": text,
        "lastTransitionTime": ago(0),
    });
    let status = json!({"phase": "Failed", "reason": "Evicted", "message": text, "conditions": [target]});
    write_status(&fixture, "evicted", status).await?;
    let object = json!({"kind": "Pod", "namespace": fixture.namespace(), "name": "evicted"});
    let uid = fixture.feed().get("evicted").and_then(|pod| pod.metadata.uid.clone());
    let mut event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "evicted.1"}, "type": "Warning",
        "reason": "Evicted", "message": text, "involvedObject": object, "firstTimestamp": ago(0),
        "lastTimestamp": ago(0), "count": 1, "source": {"component": "kubelet", "host": node.name},
    });
    event["involvedObject"]["uid"] = json!(uid);
    create(&fixture, event).await?;
    let words = format!(
        "the kubelet of node {} evicted it: The node was low on resource: memory. Threshold quantity: 100Mi, available: \
         48Mi. Container server was using 912Mi, request is 0, has larger consumption of memory.",
        node.name
    );
    let said = until_first_line(&fixture, "evicted", &words).await?;
    let next = format!("; next: kubectl describe node {}", node.name);
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");

    let low = (
        "MemoryPressure",
        "True",
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
    );
    node.report_all(&[ready, low], &ago(0)).await?;
    node.until_tainted("node.kubernetes.io/memory-pressure").await?;
    pod(&fixture, "next", here, json!({})).await?;
    let words = format!(
        "no node takes it: memory is low on node {} (taint node.kubernetes.io/memory-pressure:NoSchedule)",
        node.name
    );
    let said = until_first_line(&fixture, "next", &words).await?;
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    until_first_line(&fixture, &format!("node/{}", node.name), "MemoryPressure is True").await?;
    fixture
        .kubectl(&["delete", "pod", "evicted", "next", "--grace-period=0", "--force"])
        .await?
        .succeeded()?;
    node.remove().await
}
