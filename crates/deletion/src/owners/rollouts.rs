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

use podward_kube_util::owners::{Owner, label_selector};
use podward_kube_util::{ApiError, CachedPod, pod_call};

use super::pod_counts::{is_in_service, request_of};
use super::pod_list::{self, ListedPart, PodMetadata};
use crate::last_timeout::LastTimeout;
use crate::read_time::ReadTime;
use crate::waiting_rollouts::WaitingRollout;
use crate::watches::WaitingPods;

/// The time from one count of a Deployment's pods to the next. Each pod that comes into service is a reason to count, and a
/// count is a list of all pods. Pods that ask meanwhile share the next count.
const COUNT_EVERY: Duration = Duration::from_millis(500);
/// A Deployment that was not counted for this time is discarded: the pods that left service are gone by then, or their
/// labels show it.
const ROLLOUT_MEMORY: Duration = Duration::from_secs(600);

/// The pods of Deployments in service. The lock of an entry is held from its read to the decision.
#[derive(Default)]
pub(crate) struct Rollouts {
    /// By UID of the Deployment.
    counts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<RolloutCount>>>>,
    /// By UID of the ReplicaSet.
    deployments: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<ReadDeployment>>>>>,
}

#[derive(Default)]
struct RolloutCount {
    rollout: Rollout,
    counted: Option<ReadTime>,
    last_timeout: LastTimeout,
}

/// The Deployment of a ReplicaSet. A rollout of many pods arrives as one burst, so a read is used for other pods too.
struct ReadDeployment {
    time: ReadTime,
    /// `None` if it has no rollout.
    rolling: Option<Arc<RollingDeployment>>,
}

/// A Deployment with a rollout.
struct RollingDeployment {
    rollout: WaitingRollout,
    /// The number of pods that it keeps in service.
    at_least: usize,
}

impl Rollouts {
    /// Decides whether `pod`, which its ReplicaSet `owner` has in excess, may leave service now. The inner error is the
    /// reason for which the pod waits, according to what was read after this call: `waiting` reports the pod again when
    /// other pods come into service.
    pub(crate) async fn leave(
        &self,
        client: &Client,
        waiting: &WaitingPods,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Result<(), String>, ApiError> {
        let asked = Instant::now();
        let is_current = |time: ReadTime| time.is_current(asked);
        let Some(rolling) = self.deployment(client, pod, owner, is_current).await? else {
            return Ok(Ok(()));
        };
        let count = self.counts.lock().entry(rolling.rollout.uid.clone()).or_default().clone();
        // Before the count, so that a pod that becomes available in between is not missed.
        waiting.wait_for_others(&pod.key(), &rolling.rollout);
        let mut count = count.lock().await;
        if let Some(counted) = count.counted.filter(|counted| counted.is_current(asked)) {
            let left = count.rollout.leave(pod.uid());
            if left.is_ok() || counted.answers(asked) {
                return Ok(left);
            }
        }
        if let Some(counted) = count.counted {
            tokio::time::sleep(COUNT_EVERY.saturating_sub(counted.age()).max(counted.pause())).await;
        }
        let is_new = |time: ReadTime| time.answers(asked);
        let Some(rolling) = self.deployment(client, pod, owner, is_new).await? else { return Ok(Ok(())) };
        let at = Instant::now();
        let params = ListParams::default().labels(&rolling.rollout.selector.to_string());
        let key = pod.key();
        let what = "list the pods of the Deployment of";
        let list = async || pod_list::list(client, &key, what, params, ListedPart::Metadata).await;
        let list = count.last_timeout.read(asked, list).await?;
        let serving: Vec<RolloutPod> = list.pods.iter().filter_map(serving).collect();
        count.rollout.count(rolling.at_least, &serving);
        count.counted = Some(ReadTime::since(at));
        Ok(count.rollout.leave(pod.uid()))
    }

    /// Returns the Deployment of the ReplicaSet `owner` if it has a rollout. It is read again unless `is_valid` is true for
    /// the time of the last read.
    async fn deployment(
        &self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
        is_valid: impl Fn(ReadTime) -> bool,
    ) -> Result<Option<Arc<RollingDeployment>>, ApiError> {
        let entry = self.deployments.lock().entry(owner.uid.clone()).or_default().clone();
        let mut known = entry.lock().await;
        if let Some(known) = known.as_ref().filter(|known| is_valid(known.time)) {
            return Ok(known.rolling.clone());
        }
        let at = Instant::now();
        let rolling = rolling(client, pod, owner).await?.map(Arc::new);
        *known = Some(ReadDeployment { time: ReadTime::since(at), rolling: rolling.clone() });
        Ok(rolling)
    }

    /// Discards entries that have not been used for some time.
    pub(crate) fn retain(&self) {
        let now = Instant::now();
        let is_valid = |read: &ReadDeployment| read.time.is_current(now);
        let mut deployments = self.deployments.lock();
        deployments.retain(|_, read| is_kept(read, |read| read.as_ref().is_some_and(is_valid)));
        let is_remembered = |count: &RolloutCount| count.counted.is_some_and(|at| at.age() < ROLLOUT_MEMORY);
        self.counts.lock().retain(|_, count| is_kept(count, is_remembered));
    }
}

/// Returns whether `entry` of a map is in use, or `is_valid`.
fn is_kept<T>(entry: &Arc<tokio::sync::Mutex<T>>, is_valid: impl Fn(&T) -> bool) -> bool {
    Arc::strong_count(entry) > 1 || entry.try_lock().is_ok_and(|entry| is_valid(&entry))
}

/// Reads the Deployment of the ReplicaSet `owner`. Returns `None` if there is no Deployment or no rollout: if the
/// ReplicaSet has all replicas of the Deployment, its own replica count is sufficient.
async fn rolling(
    client: &Client,
    pod: &CachedPod,
    owner: &OwnerReference,
) -> Result<Option<RollingDeployment>, ApiError> {
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
    let rollout = WaitingRollout {
        namespace,
        uid: owner.uid.clone(),
        selector: label_selector(&deployment).unwrap_or_default(),
    };
    let at_least = deployment.spec.available_while_rolling();
    Ok(at_least.map(|at_least| RollingDeployment { rollout, at_least }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_in_use_is_not_discarded() {
        let rollouts = Rollouts::default();
        let (count, read) = (Arc::default(), Arc::default());
        rollouts.counts.lock().insert("deployment".to_owned(), Arc::clone(&count));
        rollouts.deployments.lock().insert("set".to_owned(), Arc::clone(&read));
        let sizes = || (rollouts.counts.lock().len(), rollouts.deployments.lock().len());
        rollouts.retain();
        assert_eq!(sizes(), (1, 1));
        drop((count, read));
        rollouts.retain();
        assert_eq!(sizes(), (0, 0));
    }
}
