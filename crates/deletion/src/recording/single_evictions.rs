//! Evictions by service accounts that no disruption budget limits: the pods of an owner are evicted one at a time.
//!
//! Some tools limit the evictions that are accepted: Argo Rollouts (`restartAt`), the VPA updater, the descheduler. An
//! eviction that Podward records is answered with 429 until the pod is gone, so that such a tool goes on to the next
//! pod. It would evict all pods of a workload within a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::deletion::request::{DeletionKind, DeletionRequest, DeletionRequestChanges};
use podward_kube_util::{ApiError, CachedPod, pod_call};

use super::patch::write;
use super::refusal::DeletionRefusal;
use crate::owners::{is_being_evicted, unfinished_evictions};
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

/// A refusal is forgotten after this time, so that the memory for refusals is bounded.
const REFUSAL_LASTS: Duration = Duration::from_secs(600);

/// Records evictions one at a time for each owner.
#[derive(Clone)]
pub(super) struct SingleEvictions {
    client: Client,
    /// The names of the pods with an unfinished eviction, by UID of the owner.
    unfinished: SharedReads<Vec<String>>,
    /// The last refusals: the pod that is being evicted, by UID of the owner.
    refusals: Arc<Mutex<HashMap<String, (String, Instant)>>>,
}

impl SingleEvictions {
    pub(super) fn new(client: Client) -> Self {
        SingleEvictions { client, unfinished: SharedReads::default(), refusals: Arc::default() }
    }

    fn refused(&self, owner: &OwnerReference, other: &str) {
        let mut refusals = self.refusals.lock();
        refusals.retain(|_, (_, at)| at.elapsed() < REFUSAL_LASTS);
        refusals.insert(owner.uid.clone(), (other.to_owned(), Instant::now()));
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
        if let Some(other) = self.still_evicted(pod, owner).await? {
            return Err(DeletionRefusal::NoRoom(refusal_text(pod, owner, &other)));
        }
        let key = pod.key();
        let read = async || unfinished_evictions(&self.client, pod, owner).await;
        let record = async |unfinished: &mut Vec<String>| {
            if let Some(other) = unfinished.iter().find(|name| **name != key.name) {
                self.refused(owner, other);
                return Ok(Err(refusal_text(pod, owner, other)));
            }
            let written = write(&self.client, pod, changes).await?;
            unfinished.push(key.name.clone());
            Ok(Ok(written))
        };
        self.unfinished.decide(&owner.uid, read, record).await?.map_err(DeletionRefusal::NoRoom)
    }

    /// Returns the pod of `owner` because of which an eviction was refused before, if it is still being evicted: a tool goes
    /// through all pods of an owner, and a list for each would be expensive.
    async fn still_evicted(
        &self,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Option<String>, ApiError> {
        let known = self.refusals.lock().get(&owner.uid).map(|(other, _)| other.clone());
        let Some(other) = known.filter(|other| *other != pod.key().name) else { return Ok(None) };
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), pod.namespace());
        let what = "read the evicted pod with the same owner as";
        let found = pod_call(what, &pod.key(), pods.get_opt(&other)).await?;
        let is_same = |found: &CachedPod| found.controller().is_some_and(|its| its.uid == owner.uid);
        let is_evicted = found.is_some_and(|found| is_same(&found) && is_being_evicted(&found));
        Ok(is_evicted.then_some(other))
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
