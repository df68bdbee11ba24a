//! Limits how many pods of a Deployment leave service during a rollout, see [`Rollout`]. The numbers are read from the
//! API server when a pod is about to leave.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use podward_core::deletion::{DeletionProgress, Rollout, RolloutPod, WorkloadPodRequest};

use podward_kube_util::owners::{Owner, label_selector, selector};
use podward_kube_util::{ApiError, CachedPod, pod_call};

use super::pod_counts::{is_in_service, request_of};
use super::pod_list::{self, PodMetadata};
use crate::read_time::ReadTime;
use crate::waiting_rollouts::WaitingRollout;
use crate::watches::WaitingPods;

/// The time for which a ReplicaSet counts as one without a rollout.
const AT_REST_FOR: Duration = Duration::from_secs(1);
/// A Deployment that was not counted for this time is discarded: the pods that left service are gone by then, or their
/// labels show it.
const ROLLOUT_MEMORY: Duration = Duration::from_secs(600);

/// One entry per Deployment. The lock of an entry is held from the count to the decision.
#[derive(Default)]
pub(crate) struct Rollouts {
    rollouts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<RolloutCount>>>>,
    /// ReplicaSets whose Deployment has no rollout, with the time of the observation. A scale-in of many pods arrives
    /// as one burst, which this map serves.
    at_rest: Mutex<HashMap<String, Instant>>,
}

#[derive(Default)]
struct RolloutCount {
    rollout: Rollout,
    counted: Option<ReadTime>,
}

impl Rollouts {
    /// Decides whether `pod`, which its ReplicaSet `owner` has in excess, may leave service now. The inner error is the
    /// reason for which the pod waits: `waiting` reports it again when other pods come into service.
    pub(crate) async fn leave(
        &self,
        client: &Client,
        waiting: &WaitingPods,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Result<(), String>, ApiError> {
        if self.at_rest.lock().get(&owner.uid).is_some_and(|seen| seen.elapsed() < AT_REST_FOR) {
            return Ok(Ok(()));
        }
        let observed_at = Instant::now();
        let Some((deployment, at_least)) = rolling(client, pod, owner).await? else {
            self.at_rest.lock().insert(owner.uid.clone(), observed_at);
            return Ok(Ok(()));
        };
        let count = self.rollouts.lock().entry(deployment.uid().unwrap_or_default()).or_default().clone();
        // Before the count, so that a pod that becomes available in between is not missed.
        waiting.wait_for_others(&pod.key(), &waiting_rollout(&deployment, &pod.key().namespace));
        let asked = Instant::now();
        let mut count = count.lock().await;
        if let Some(counted) = count.counted.filter(|counted| counted.is_current(asked)) {
            let left = count.rollout.leave(pod.uid());
            if left.is_ok() || counted.answers(asked) {
                return Ok(left);
            }
        }
        let at = Instant::now();
        let params = ListParams { label_selector: selector(&deployment), ..ListParams::default() };
        let list = pod_list::list(client, &pod.key(), "list the pods of the Deployment of", params).await?;
        let serving: Vec<RolloutPod> = list.iter().filter_map(serving).collect();
        count.rollout.count(at_least, &serving);
        count.counted = Some(ReadTime::since(at));
        Ok(count.rollout.leave(pod.uid()))
    }

    /// Discards entries that have not been used for some time.
    pub(crate) fn retain(&self) {
        self.at_rest.lock().retain(|_, seen| seen.elapsed() < AT_REST_FOR);
        let is_remembered = |count: &RolloutCount| count.counted.is_some_and(|at| at.age() < ROLLOUT_MEMORY);
        self.rollouts.lock().retain(|_, count| count.try_lock().is_ok_and(|count| is_remembered(&count)));
    }
}

/// Returns the Deployment of the ReplicaSet `owner` and how many pods it keeps in service during a rollout. Returns
/// `None` if there is no Deployment or no rollout: if the ReplicaSet has all replicas of the Deployment, its own
/// replica count is sufficient.
async fn rolling(
    client: &Client,
    pod: &CachedPod,
    owner: &OwnerReference,
) -> Result<Option<(Owner, usize)>, ApiError> {
    if (owner.api_version.as_str(), owner.kind.as_str()) != ("apps/v1", "ReplicaSet") {
        return Ok(None);
    }
    let namespace = pod.key().namespace;
    let api = |kind, plural| -> Api<Owner> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", kind), plural);
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    let sets = api("ReplicaSet", "replicasets");
    let Some(set) = pod_call("read the ReplicaSet of", &pod.key(), sets.get_opt(&owner.name)).await? else {
        return Ok(None);
    };
    let is_deployment = |owner: &&OwnerReference| {
        owner.controller == Some(true) && owner.api_version == "apps/v1" && owner.kind == "Deployment"
    };
    let Some(owner) = set.owner_references().iter().find(is_deployment) else { return Ok(None) };
    let deployments = api("Deployment", "deployments");
    let Some(deployment) =
        pod_call("read the Deployment of", &pod.key(), deployments.get_opt(&owner.name)).await?
    else {
        return Ok(None);
    };
    let is_ending =
        deployment.uid().as_ref() != Some(&owner.uid) || deployment.metadata.deletion_timestamp.is_some();
    if is_ending || set.spec.replicas() >= deployment.spec.replicas() {
        return Ok(None);
    }
    let at_least = deployment.spec.available_while_rolling();
    Ok(at_least.map(|at_least| (deployment, at_least)))
}

fn waiting_rollout(deployment: &Owner, namespace: &str) -> WaitingRollout {
    WaitingRollout {
        namespace: namespace.to_owned(),
        uid: deployment.uid().unwrap_or_default(),
        selector: label_selector(deployment).unwrap_or_default(),
    }
}

/// Returns how `pod` counts. `None` if it is terminating.
fn serving(pod: &PodMetadata) -> Option<RolloutPod> {
    if pod.is_terminating() {
        return None;
    }
    let request = request_of(pod);
    let leaves =
        request.is_some_and(|WorkloadPodRequest { progress, .. }| progress <= DeletionProgress::Passed);
    Some(RolloutPod {
        uid: pod.uid.clone(),
        in_service: is_in_service(pod) && !leaves,
        requested: request.is_some(),
    })
}
