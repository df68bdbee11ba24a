//! What a pod's owner wants, read from the API server itself.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use kube::core::{Object, PartialObjectMeta, Selector};
use kube::{Api, Client, ResourceExt};
use podward_core::busy::{Claim, DEAREST};
use podward_core::deletion::{Member, MemberWish, Progress, Workload};
use podward_core::keys::{
    BUSY_UNTIL, DELETE_OPERATION, DELETION_WISH, POD_DELETION_COST, SERVICE_AVAILABLE, Stage, TO_DELETE,
};
use podward_core::wish::Wish;
use podward_core::{Operations, UnixNanos};
use serde::Deserialize;
use serde_json::Value;

use super::patch::timely;
use crate::cached_pod::CachedPod;
use crate::error::Error;
use crate::reconcile::now;

/// The label by which StatefulSets tell pods of one revision from those of another.
const REVISION: &str = "controller-revision-hash";

/// An owner of any of the kinds that count, with only what counts.
pub(crate) type Owner = Object<OwnerSpec, OwnerStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerSpec {
    replicas: Option<u32>,
    selector: Value,
    ordinals: Option<Ordinals>,
    #[serde(alias = "strategy")]
    update_strategy: Option<UpdateStrategy>,
    parallelism: Option<u32>,
    completions: Option<u32>,
    suspend: Option<bool>,
    active_deadline_seconds: Option<i64>,
    backoff_limit: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Ordinals {
    #[serde(default)]
    start: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateStrategy {
    #[serde(rename = "type")]
    type_: Option<String>,
    rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RollingUpdate {
    max_unavailable: Option<IntOrString>,
    max_surge: Option<IntOrString>,
}

impl OwnerSpec {
    /// `replicas`, by default 1.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(1)
    }

    /// Of a Deployment: how many pods it keeps available while it rolls out, as its controller counts (`ResolveFenceposts` in
    /// kubernetes/pkg/controller/deployment/util); `None` when it doesn't roll but recreates.
    pub(super) fn available_while_rolling(&self) -> Option<usize> {
        let strategy = self.update_strategy.clone().unwrap_or_default();
        if strategy.type_.as_deref() == Some("Recreate") {
            return None;
        }
        let replicas = self.replicas();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let surge = rolling.max_surge.map_or(1, |value| scaled(&value, replicas, Rounded::Up));
        let unavailable = rolling.max_unavailable.map_or(0, |value| scaled(&value, replicas, Rounded::Down));
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        Some(replicas.saturating_sub(unavailable) as usize)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerStatus {
    observed_generation: Option<i64>,
    update_revision: Option<String>,
    desired_number_scheduled: Option<u32>,
    succeeded: Option<u32>,
    failed: Option<i32>,
    start_time: Option<Time>,
    conditions: Option<Vec<OwnerCondition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct OwnerCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// What an owner wants, and the active pods that it has.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) workload: Workload,
    pub(super) members: Vec<Member>,
    /// Whether a pod in service that nobody wishes gone is not busy.
    pub(super) has_idle: bool,
}

/// The API resource of an owner whose numbers count; `None` for all others.
pub(crate) fn resource_of(owner: &OwnerReference) -> Option<ApiResource> {
    let plural = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => "replicasets",
        ("apps/v1", "StatefulSet") => "statefulsets",
        ("apps/v1", "DaemonSet") => "daemonsets",
        ("batch/v1", "Job") => "jobs",
        ("v1", "ReplicationController") => "replicationcontrollers",
        _ => return None,
    };
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &owner.kind), plural))
}

/// Reads `owner` and its pods. All that is read is as new as the moment of the call.
pub(super) async fn read(client: &Client, pod: &CachedPod, owner: &OwnerReference) -> Result<Numbers, Error> {
    let ending = Numbers { workload: Workload::Ending, members: Vec::new(), has_idle: false };
    let Some(resource) = resource_of(owner) else { return Ok(ending) };
    let namespace = pod.key().namespace;
    let owners: Api<Owner> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let found = timely("read the owner of", pod, owners.get_opt(&owner.name)).await?;
    let Some(found) = found else { return Ok(ending) };
    let workload = wants(&found, owner, Timestamp::now());
    if workload == Workload::Ending {
        return Ok(ending);
    }
    // Pods that have run to their end are nobody's replica any more. Metadata is all that is needed of the others.
    let params = ListParams { label_selector: selector(&found), ..ListParams::default() }
        .fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let list = timely("list the pods beside", pod, pods.list_metadata(&params)).await?;
    let members: Vec<Member> = list.items.iter().filter_map(|member| member_of(member, owner)).collect();
    let now = now();
    let is_member = |uid: &Option<String>| members.iter().any(|member| uid.as_ref() == Some(&member.uid));
    let has_idle = list.items.iter().any(|pod| is_member(&pod.metadata.uid) && is_idle(pod, now));
    Ok(Numbers { workload, members, has_idle })
}

/// What `found`, which goes by the name of `owner`, wants.
pub(crate) fn wants(found: &Owner, owner: &OwnerReference, now: Timestamp) -> Workload {
    if found.uid().as_deref() != Some(owner.uid.as_str()) || found.metadata.deletion_timestamp.is_some() {
        return Workload::Ending;
    }
    let spec = &found.spec;
    let status = found.status.clone().unwrap_or_default();
    let wanted = spec.replicas();
    match owner.kind.as_str() {
        "ReplicaSet" | "ReplicationController" => Workload::Count { wanted },
        "StatefulSet" => {
            let is_observed = status.observed_generation >= found.metadata.generation;
            let update_revision =
                status.update_revision.filter(|revision| is_observed && !revision.is_empty());
            let start = spec.ordinals.unwrap_or_default().start;
            Workload::StatefulSet { start, wanted, update_revision }
        }
        "DaemonSet" => {
            let total = status.desired_number_scheduled.unwrap_or_default();
            let rolling = spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
            let of_total =
                |value: Option<&IntOrString>| value.map_or(0, |value| scaled(value, total, Rounded::Up));
            let at_once = rolling.map_or(1, |rolling| {
                of_total(rolling.max_unavailable.as_ref()).max(of_total(rolling.max_surge.as_ref()))
            });
            Workload::DaemonSet { at_once: at_once.max(1) }
        }
        "Job" => job_wants(spec, &status, now),
        _ => Workload::Ending,
    }
}

/// How many pods `found`, which goes by the name of `owner`, is to have: none if it is another object, or on its way out.
pub(crate) fn desired(found: &Owner, owner: &OwnerReference, now: Timestamp) -> u32 {
    let is_it =
        found.uid().as_deref() == Some(owner.uid.as_str()) && found.metadata.deletion_timestamp.is_none();
    let is_known = resource_of(owner).is_some();
    match wants(found, owner, now) {
        Workload::Count { wanted } | Workload::StatefulSet { wanted, .. } => wanted,
        Workload::DaemonSet { .. } => {
            found.status.as_ref().and_then(|status| status.desired_number_scheduled).unwrap_or_default()
        }
        // Kinds that nothing is deleted for, but that have replicas.
        Workload::Ending if is_it && !is_known => found.spec.replicas(),
        Workload::Ending => 0,
    }
}

/// A Job deletes pods of which it has too many for its parallelism and what is left to complete, and all when it ends.
fn job_wants(spec: &OwnerSpec, status: &OwnerStatus, now: Timestamp) -> Workload {
    const ENDS: [&str; 4] = ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"];
    let has_ended = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| ENDS.contains(&condition.type_.as_str()) && condition.status == "True");
    let is_overdue =
        status.start_time.as_ref().zip(spec.active_deadline_seconds).is_some_and(|(start, seconds)| {
            now.duration_since(start.0) >= SignedDuration::from_secs(seconds)
        });
    let has_failed = status.failed.unwrap_or_default() > spec.backoff_limit.unwrap_or(6);
    if spec.suspend == Some(true) || has_ended || is_overdue || has_failed {
        return Workload::Ending;
    }
    let parallelism = spec.parallelism.unwrap_or(1);
    let left = spec.completions.map(|all| all.saturating_sub(status.succeeded.unwrap_or_default()));
    Workload::Count { wanted: left.map_or(parallelism, |left| left.min(parallelism)) }
}

#[derive(Clone, Copy)]
enum Rounded {
    Up,
    Down,
}

/// A number, or a percentage of `total`.
fn scaled(value: &IntOrString, total: u32, rounded: Rounded) -> u32 {
    match value {
        IntOrString::Int(number) => u32::try_from(*number).unwrap_or_default(),
        IntOrString::String(text) => {
            let percent: u64 = text.strip_suffix('%').and_then(|text| text.parse().ok()).unwrap_or_default();
            let hundredfold = u64::from(total) * percent;
            let scaled = match rounded {
                Rounded::Up => hundredfold.div_ceil(100),
                Rounded::Down => hundredfold / 100,
            };
            u32::try_from(scaled).unwrap_or(u32::MAX)
        }
    }
}

pub(super) fn selector(owner: &Owner) -> Option<String> {
    let value = owner.spec.selector.clone();
    let is_plain = !["matchLabels", "matchExpressions"].iter().any(|key| value.get(key).is_some());
    let selector: Selector = if is_plain {
        serde_json::from_value::<BTreeMap<String, String>>(value).ok()?.into_iter().collect()
    } else {
        serde_json::from_value::<LabelSelector>(value).ok()?.try_into().ok()?
    };
    Some(selector.to_string())
}

fn member_of(pod: &PartialObjectMeta<Pod>, owner: &OwnerReference) -> Option<Member> {
    let meta = &pod.metadata;
    let is_of_owner = meta
        .owner_references
        .iter()
        .flatten()
        .any(|reference| reference.controller == Some(true) && reference.uid == owner.uid);
    if !is_of_owner || meta.deletion_timestamp.is_some() {
        return None;
    }
    Some(Member {
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        revision: pod.labels().get(REVISION).cloned(),
        wish: wish_of(pod),
    })
}

/// Whether a workload may well choose `pod` before one that is busy.
fn is_idle(pod: &PartialObjectMeta<Pod>, now: UnixNanos) -> bool {
    let text = |key: &str| pod.annotations().get(key).map(String::as_str);
    let is_in_service = pod.labels().contains_key(SERVICE_AVAILABLE);
    let is_busy = Claim::parse(text(BUSY_UNTIL), None).at(now).is_some();
    is_in_service && !is_busy && wish_of(pod).is_none() && text(POD_DELETION_COST) != Some(DEAREST)
}

pub(super) fn wish_of(pod: &PartialObjectMeta<Pod>) -> Option<MemberWish> {
    let label = pod.labels().get(TO_DELETE)?;
    let operations = Operations::parse(pod.labels());
    let has = |stage| operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(stage));
    let progress = match () {
        () if has(Stage::Operate) => Progress::Granted,
        () if has(Stage::PreChecked) => Progress::Passed,
        () => Progress::Asked,
    };
    match pod.annotations().get(DELETION_WISH).and_then(|text| Wish::parse(text)) {
        // It stays for now.
        Some(wish) if wish.not_before.is_some() && progress == Progress::Asked => None,
        Some(wish) => Some(MemberWish { at: wish.requested_at, by_workload: wish.by_workload, progress }),
        None => Some(MemberWish { at: label.parse().unwrap_or_default(), by_workload: false, progress }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_keeps_what_its_strategy_says() {
        let keeps = |strategy: Value| {
            let spec: OwnerSpec =
                serde_json::from_value(json!({"replicas": 5, "strategy": strategy})).unwrap();
            spec.available_while_rolling()
        };
        let rolling = |unavailable: Value, surge: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}});
        assert_eq!(keeps(rolling(json!("25%"), json!("25%"))), Some(4), "1.25 is 1");
        assert_eq!(keeps(rolling(json!(0), json!(1))), Some(5));
        assert_eq!(keeps(rolling(json!("10%"), json!(0))), Some(4), "with no surge one is unavailable");
        assert_eq!(keeps(rolling(json!(7), json!(1))), Some(0));
        assert_eq!(keeps(json!({"type": "Recreate"})), None);
    }
}
