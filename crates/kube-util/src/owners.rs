//! Owners of pods: the number of pods that a ReplicaSet, a StatefulSet, a DaemonSet or a Job wants.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::{ApiResource, GroupVersionKind};
use kube::core::{Object, Selector};
use podward_core::deletion::Workload;
use podward_core::is_object_name;
use serde::Deserialize;
use serde_json::Value;

/// An owner of one of the supported kinds, reduced to the fields that determine its number of pods.
pub type Owner = Object<OwnerSpec, OwnerStatus>;

/// The fields of an owner's `spec` that determine its number of pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerSpec {
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
    template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplate {
    spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateSpec {
    restart_policy: Option<String>,
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
    /// Returns `replicas`, 1 by default.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(1)
    }

    /// Returns the number of pods that a Deployment keeps available during a rolling update, as its controller computes
    /// it (`ResolveFenceposts` in kubernetes/pkg/controller/deployment/util). `None` for the strategy `Recreate`.
    #[must_use]
    pub fn available_while_rolling(&self) -> Option<usize> {
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

/// The fields of an owner's `status` that determine its number of pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerStatus {
    observed_generation: Option<i64>,
    update_revision: Option<String>,
    desired_number_scheduled: Option<u32>,
    number_misscheduled: Option<u32>,
    active: Option<u32>,
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

/// Returns the API resource of `owner`, or `None` if its kind is not supported, or no object can have its name.
#[must_use]
pub fn resource_of(owner: &OwnerReference) -> Option<ApiResource> {
    let plural = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => "replicasets",
        ("apps/v1", "StatefulSet") => "statefulsets",
        ("apps/v1", "DaemonSet") => "daemonsets",
        ("batch/v1", "Job") => "jobs",
        ("v1", "ReplicationController") => "replicationcontrollers",
        _ => return None,
    };
    resource_named(owner, plural)
}

/// Returns the API resource `plural` of `owner`, or `None` if no object can have its name. The API server accepts any name in a
/// reference, and a request with such a name fails.
#[must_use]
pub fn resource_named(owner: &OwnerReference, plural: &str) -> Option<ApiResource> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    is_object_name(&owner.name).then(|| ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Returns the pods that `found` wants at the time `now`. `found` is the object with the name of `owner`; if it has
/// another UID or is being deleted, the workload is [`Workload::Ending`].
#[must_use]
pub fn wants(found: &Owner, owner: &OwnerReference, now: Timestamp) -> Workload {
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
            // After a change of its node selector, the controller deletes the pods of all nodes that it does not select
            // any more, without a limit.
            let misscheduled = status.number_misscheduled.unwrap_or_default();
            Workload::DaemonSet { at_once: at_once.max(1).saturating_add(misscheduled), wanted: total }
        }
        "Job" => job_wants(spec, &status, now),
        _ => Workload::Ending,
    }
}

/// Returns the number of pods that `found` wants at the time `now`. `found` is the object with the name of `owner`; if
/// it has another UID or is being deleted, the number is 0.
#[must_use]
pub fn desired(found: &Owner, owner: &OwnerReference, now: Timestamp) -> u32 {
    let is_it =
        found.uid().as_deref() == Some(owner.uid.as_str()) && found.metadata.deletion_timestamp.is_none();
    let is_known = resource_of(owner).is_some();
    match wants(found, owner, now) {
        Workload::Count { wanted }
        | Workload::Job { wanted, .. }
        | Workload::StatefulSet { wanted, .. }
        | Workload::DaemonSet { wanted, .. } => wanted,
        // Other kinds with `spec.replicas`.
        Workload::Ending if is_it && !is_known => found.spec.replicas(),
        Workload::Ending => 0,
    }
}

/// A Job deletes the pods that exceed its parallelism or its remaining completions, and all active pods when it ends.
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
    let wanted = left.map_or(parallelism, |left| left.min(parallelism));
    let counts_restarts = spec.template.spec.restart_policy.as_deref() == Some("OnFailure");
    // With a limit of 0 the Job fails by the first restart, as with 1 (`pastBackoffLimitOnFailure`).
    let limit = u32::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or_default().max(1);
    let restart_limit = counts_restarts.then_some(limit);
    Workload::Job { wanted, reported: status.active.unwrap_or_default(), restart_limit }
}

#[derive(Clone, Copy)]
enum Rounded {
    Up,
    Down,
}

/// Returns `value`, or its percentage of `total`.
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

/// Returns the label selector of `owner` as the text of a list parameter, or `None` if it is invalid.
#[must_use]
pub fn selector(owner: &Owner) -> Option<String> {
    label_selector(owner).map(|selector| selector.to_string())
}

/// Returns the label selector of `owner`, or `None` if it is invalid.
#[must_use]
pub fn label_selector(owner: &Owner) -> Option<Selector> {
    let value = owner.spec.selector.clone();
    let is_plain = !["matchLabels", "matchExpressions"].iter().any(|key| value.get(key).is_some());
    if is_plain {
        Some(serde_json::from_value::<BTreeMap<String, String>>(value).ok()?.into_iter().collect())
    } else {
        serde_json::from_value::<LabelSelector>(value).ok()?.try_into().ok()
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
        let rolling = |unavailable: Value, surge: Value| {
            let limits = json!({"maxUnavailable": unavailable, "maxSurge": surge});
            json!({"type": "RollingUpdate", "rollingUpdate": limits})
        };
        assert_eq!(keeps(rolling(json!("25%"), json!("25%"))), Some(4), "1.25 is 1");
        assert_eq!(keeps(rolling(json!(0), json!(1))), Some(5));
        assert_eq!(keeps(rolling(json!("10%"), json!(0))), Some(4), "with no surge one is unavailable");
        assert_eq!(keeps(rolling(json!(7), json!(1))), Some(0));
        assert_eq!(keeps(json!({"type": "Recreate"})), None);
    }

    #[test]
    fn a_daemon_set_deletes_the_pods_of_nodes_that_it_does_not_select_any_more() {
        let owner: OwnerReference = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u",
        }))
        .unwrap();
        let at_once = |status: Value| {
            let found: Owner = serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "uid": "u"},
                "spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}, "status": status,
            }))
            .unwrap();
            match wants(&found, &owner, Timestamp::UNIX_EPOCH) {
                Workload::DaemonSet { at_once, .. } => at_once,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(at_once(json!({"desiredNumberScheduled": 9})), 2);
        assert_eq!(at_once(json!({"desiredNumberScheduled": 4, "numberMisscheduled": 5})), 7);
    }
}
