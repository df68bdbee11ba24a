//! Evictions by service accounts that no disruption budget limits: the pods of an owner are evicted one at a time.
//!
//! Some tools limit the evictions that are accepted: Argo Rollouts (`restartAt`), the VPA updater, the descheduler. An
//! eviction that Podward records is answered with 429 until the pod is gone, so that such a tool goes on to the next
//! pod. It would evict all pods of a workload within a second.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client};
use podward_core::deletion::request::{DeletionKind, DeletionRequest, DeletionRequestChanges};
use podward_kube_util::{CachedPod, pod_call};

use super::patch::write;
use super::refusal::DeletionRefusal;
use crate::owners::unfinished_evictions;
use crate::shared_reads::SharedReads;

/// The taints of a node that a tool drains without cordoning it.
const DRAIN_TAINTS: [&str; 3] = [
    // cluster-autoscaler/utils/taints/taints.go
    "ToBeDeletedByClusterAutoscaler",
    // karpenter/pkg/apis/v1/taints.go
    "karpenter.sh/disrupted",
    // karpenter/pkg/apis/v1beta1/taints.go
    "karpenter.sh/disruption",
];

/// Records evictions one at a time for each owner.
#[derive(Clone)]
pub(super) struct SingleEvictions {
    client: Client,
    /// The names of the pods with an unfinished eviction, by UID of the owner.
    unfinished: SharedReads<Vec<String>>,
}

impl SingleEvictions {
    pub(super) fn new(client: Client) -> Self {
        SingleEvictions { client, unfinished: SharedReads::default() }
    }

    /// Writes `changes`, which record an eviction of `pod`, unless an eviction of another pod of `owner` is not
    /// finished. Requests of this replica at the same time wait for the write. Two replicas may record one eviction
    /// each at the same moment. Returns the stored pod.
    ///
    /// # Errors
    /// Fails with [`DeletionRefusal::NoRoom`] because of the other eviction, and if the API server refuses a request.
    pub(super) async fn record(
        &self,
        pod: &CachedPod,
        owner: &OwnerReference,
        changes: &DeletionRequestChanges,
    ) -> Result<Arc<CachedPod>, DeletionRefusal> {
        let key = pod.key();
        let read = async || unfinished_evictions(&self.client, pod, owner).await;
        let record = async |unfinished: &mut Vec<String>| {
            if let Some(other) = unfinished.iter().find(|name| **name != key.name) {
                return Ok(Err(refusal_text(pod, owner, other)));
            }
            let written = write(&self.client, pod, changes).await?;
            unfinished.push(key.name.clone());
            Ok(Ok(written))
        };
        self.unfinished.decide(&owner.uid, read, record).await?.map_err(DeletionRefusal::NoRoom)
    }

    /// Returns whether the node of `pod` is being drained: it is cordoned, has a taint of a tool that drains it, or is
    /// gone. An eviction is not refused because of a failed read: returns true then. A pod without a node serves
    /// nothing: true too.
    pub(super) async fn is_node_drained(&self, pod: &CachedPod) -> bool {
        let Some(name) = pod.node_name() else { return true };
        // A list, because the controller may list nodes and not get them.
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        let nodes: Api<Node> = Api::all(self.client.clone());
        match pod_call("read the node of", &pod.key(), nodes.list(&only)).await {
            Ok(nodes) => nodes.items.iter().all(|node| node.spec.as_ref().is_some_and(is_drained)),
            Err(error) => {
                tracing::warn!(%error, pod = %pod.key(), "could not read whether the node is being drained");
                true
            }
        }
    }
}

/// Returns whether a service account requests a new eviction with `request`.
pub(super) fn is_eviction_by_tool(request: &DeletionRequest) -> bool {
    request.kind == DeletionKind::Evict
        && !request.by_workload
        && request.requested_by.starts_with("system:serviceaccount:")
}

fn is_drained(node: &NodeSpec) -> bool {
    let mut taints = node.taints.iter().flatten();
    node.unschedulable == Some(true)
        || taints.any(|taint| {
            DRAIN_TAINTS.contains(&taint.key.as_str())
                && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
        })
}

fn refusal_text(pod: &CachedPod, owner: &OwnerReference, other: &str) -> String {
    format!(
        "pod {} is not evicted: no PodDisruptionBudget selects it, so service accounts evict the pods of {} {} one at \
         a time, and the eviction of pod {other} is not finished; no eviction was recorded, and the pod continues to \
         serve; try again later, or create a PodDisruptionBudget that allows more at a time",
        pod.key(),
        owner.kind,
        owner.name
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Taint;

    use super::*;

    #[test]
    fn a_node_is_drained_if_it_is_cordoned_or_a_tool_removes_it() {
        let cordoned = NodeSpec { unschedulable: Some(true), ..NodeSpec::default() };
        assert!(is_drained(&cordoned) && !is_drained(&NodeSpec::default()));
        let tainted = |key: &str, effect: &str| {
            let taint = Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() };
            is_drained(&NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() })
        };
        assert!(DRAIN_TAINTS.iter().all(|key| tainted(key, "NoSchedule") && tainted(key, "NoExecute")));
        assert!(!tainted(DRAIN_TAINTS[0], "PreferNoSchedule"));
        assert!(!tainted("gpu", "NoSchedule"), "its pods tolerate the taint");
        assert!(!tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"));
    }
}
