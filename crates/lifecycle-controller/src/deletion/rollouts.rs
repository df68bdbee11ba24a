//! How many pods a Deployment keeps in service while it rolls out, see [`Rollout`]: read from the API server when one of its pods is
//! to leave.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use podward_core::deletion::{MemberWish, Progress, Rollout, Serving};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_AVAILABLE};

use super::patch::timely;
use super::workloads::{Owner, selector, wish_of};
use crate::cached_pod::CachedPod;
use crate::error::Error;

/// For how long what was read lets further pods leave. Before one is told to wait it is counted anew.
const SERVES: Duration = Duration::from_secs(1);
/// A Deployment of which nobody asked for so long is forgotten: what it let leave is gone, or says so by its labels.
const REMEMBERED: Duration = Duration::from_secs(600);

/// One page a Deployment. Its lock is held from the count to the decision.
#[derive(Default)]
pub(super) struct Rollouts {
    pages: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Page>>>>,
    /// ReplicaSets whose Deployment doesn't roll out, and when that was seen. A scale-in of many pods comes as one burst.
    at_rest: Mutex<HashMap<String, Instant>>,
}

#[derive(Default)]
struct Page {
    rollout: Rollout,
    counted: Option<Instant>,
}

impl Rollouts {
    /// Whether `pod`, which its ReplicaSet `owner` has too many, may leave service now; or why it has to wait, in words.
    pub(super) async fn leave(
        &self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Result<(), String>, Error> {
        if self.at_rest.lock().get(&owner.uid).is_some_and(|seen| seen.elapsed() < SERVES) {
            return Ok(Ok(()));
        }
        let asked = Instant::now();
        let Some((deployment, at_least)) = rolling(client, pod, owner).await? else {
            self.at_rest.lock().insert(owner.uid.clone(), asked);
            return Ok(Ok(()));
        };
        let page = self.pages.lock().entry(deployment.uid().unwrap_or_default()).or_default().clone();
        let mut page = page.lock().await;
        let serves = page.counted.is_some_and(|at| at.elapsed() < SERVES);
        if serves && page.rollout.leave(pod.uid()).is_ok() {
            return Ok(Ok(()));
        }
        let at = Instant::now();
        let params = ListParams { label_selector: selector(&deployment), ..ListParams::default() };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.key().namespace);
        let list = timely("list the pods of the Deployment of", pod, pods.list_metadata(&params)).await?;
        let serving: Vec<Serving> = list.items.iter().filter_map(serving).collect();
        page.rollout.count(at_least, &serving);
        page.counted = Some(at);
        Ok(page.rollout.leave(pod.uid()))
    }

    /// Forgets what nobody asks for any more.
    pub(super) fn retain(&self) {
        self.at_rest.lock().retain(|_, seen| seen.elapsed() < SERVES);
        let is_remembered = |page: &Page| page.counted.is_some_and(|at| at.elapsed() < REMEMBERED);
        self.pages.lock().retain(|_, page| page.try_lock().is_ok_and(|page| is_remembered(&page)));
    }
}

/// The Deployment of the ReplicaSet `owner`, while others of its ReplicaSets have some of its pods, and how many pods it keeps in
/// service then. When this ReplicaSet is to have all of them, its own number says all.
async fn rolling(
    client: &Client,
    pod: &CachedPod,
    owner: &OwnerReference,
) -> Result<Option<(Owner, usize)>, Error> {
    if (owner.api_version.as_str(), owner.kind.as_str()) != ("apps/v1", "ReplicaSet") {
        return Ok(None);
    }
    let namespace = pod.key().namespace;
    let api = |kind, plural| -> Api<Owner> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", kind), plural);
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    let sets = api("ReplicaSet", "replicasets");
    let Some(set) = timely("read the ReplicaSet of", pod, sets.get_opt(&owner.name)).await? else {
        return Ok(None);
    };
    let is_deployment = |owner: &&OwnerReference| {
        owner.controller == Some(true) && owner.api_version == "apps/v1" && owner.kind == "Deployment"
    };
    let Some(owner) = set.owner_references().iter().find(is_deployment) else { return Ok(None) };
    let deployments = api("Deployment", "deployments");
    let Some(deployment) = timely("read the Deployment of", pod, deployments.get_opt(&owner.name)).await?
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

/// How `pod` counts; `None` when it is on its way out.
fn serving(pod: &PartialObjectMeta<Pod>) -> Option<Serving> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let wish = wish_of(pod);
    let leaves = wish.is_some_and(|MemberWish { progress, .. }| progress <= Progress::Passed);
    let has = |key: &str, value: Option<&str>| {
        pod.labels().get(key).is_some_and(|text| value.is_none_or(|value| text == value))
    };
    // Of one that isn't opted in its labels tell nothing: the Deployment controller sees to those.
    let serves = has(SERVICE_AVAILABLE, None) || !has(CONTROL_LABEL, Some(CONTROL_VALUE));
    Some(Serving { uid: pod.metadata.uid.clone()?, in_service: serves && !leaves, wished: wish.is_some() })
}
