//! The pod as the controller keeps it: only what the engine reads, so that thousands fit into little memory.

mod reading;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use podward_core::busy::{Cost, is_chosen_by_cost};
use podward_core::keys::{
    ASKED, AVAILABLE_CONDITIONS, BUSY_REASON, BUSY_UNTIL, DELETE_TIMESTAMP, DELETION_WISH, EVIDENCE,
    IDLE_DELETION_COST, POD_DELETION_COST, REFUSED, SKIP_RULES,
};
use podward_core::rules::Subject;
use podward_core::wish::{Carried, Wish};
use podward_core::{ConditionStatus, Explanation, Facts, PodView, UnixNanos};
use serde::Deserialize;

use reading::{has_gate, null_is_empty, slim_conditions, slim_metadata};

/// Longer than a kubelet takes to act on a change of a readiness gate: 0.7 s were seen on a busy node. Conditions have whole
/// seconds, so of these two one may be lost.
const DOUBT: SignedDuration = SignedDuration::from_secs(2);

/// A pod with everything dropped on reading that nobody here asks for: containers, volumes, managed fields, other annotations.
/// It is never written back; writes are patches.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct CachedPod {
    #[serde(deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: CachedSpec,
    #[serde(default)]
    status: CachedStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CachedSpec {
    #[serde(default, deserialize_with = "has_gate")]
    readiness_gates: bool,
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    containers: Vec<CachedContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct CachedContainer {
    #[serde(default, deserialize_with = "null_is_empty")]
    ports: Vec<CachedPort>,
}

/// A port that a container declares.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CachedPort {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) container_port: u16,
    #[serde(default)]
    pub(crate) protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CachedStatus {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "podIPs", deserialize_with = "null_is_empty")]
    pod_ips: Vec<CachedIp>,
    #[serde(default, deserialize_with = "slim_conditions")]
    conditions: Conditions,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct CachedIp {
    ip: String,
}

/// The conditions that are read.
#[derive(Clone, Debug, Default)]
struct Conditions {
    gate: Option<ConditionStatus>,
    gate_since: Option<Timestamp>,
    ready: bool,
    ready_since: Option<Timestamp>,
    containers_ready: bool,
    containers_ready_since: Option<Timestamp>,
    lifecycle: Option<LifecycleCondition>,
}

/// The condition for people, as it stands on the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LifecycleCondition {
    pub(crate) status: ConditionStatus,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl CachedPod {
    /// Its labels. The rest of what the engine sees has to be read from annotations and conditions.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
    }

    /// What the engine sees.
    #[must_use]
    pub(crate) fn view(&self) -> PodView<'_> {
        PodView {
            labels: self.labels(),
            available_conditions: self.annotation(AVAILABLE_CONDITIONS),
            finalizers: self.metadata.finalizers.as_deref().unwrap_or_default(),
            has_gate: self.spec.readiness_gates,
            gate: self.status.conditions.gate,
            ready: self.status.conditions.ready,
            terminating: self.metadata.deletion_timestamp.is_some(),
            facts: self.facts(),
        }
    }

    fn facts(&self) -> Facts<'_> {
        let conditions = &self.status.conditions;
        let nanos = |time: Option<Timestamp>| time.map(unix_nanos);
        Facts {
            containers_ready: conditions.containers_ready,
            evidence: self.evidence(),
            asked: self.annotation(ASKED),
            refused: self.annotation(REFUSED),
            busy_until: self.annotation(BUSY_UNTIL),
            busy_reason: self.annotation(BUSY_REASON),
            created_at: nanos(self.created_at()),
            gate_since: nanos(conditions.gate_since),
            ready_since: nanos(conditions.ready_since),
            containers_ready_since: nanos(conditions.containers_ready_since),
            terminating_since: nanos(self.terminating_since()),
        }
    }

    /// A pod of which nothing but its name is known.
    pub(crate) fn named(key: &PodKey) -> CachedPod {
        let metadata = ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ObjectMeta::default()
        };
        CachedPod { metadata, ..CachedPod::default() }
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The annotations whose keys begin with `prefix`.
    pub(crate) fn annotations_below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.metadata.annotations.iter().flatten();
        all.filter(move |(key, _)| key.starts_with(prefix)).map(|(key, text)| (key.as_str(), text.as_str()))
    }

    /// The text of the annotation [`SKIP_RULES`].
    pub(crate) fn skipped_rules(&self) -> Option<&str> {
        self.annotation(SKIP_RULES)
    }

    /// What rules are asked about.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            namespace: self.namespace(),
            name: self.metadata.name.as_deref().unwrap_or_default(),
            uid: self.uid(),
            labels: self.labels(),
            skip: self.skipped_rules(),
        }
    }

    /// The wish to delete it.
    pub(crate) fn wish(&self) -> Option<Wish> {
        self.annotation(DELETION_WISH).and_then(Wish::parse)
    }

    /// What it carries of a wish; `wish` is what [`CachedPod::wish`] gave.
    pub(crate) fn carried<'a>(&'a self, wish: Option<&'a Wish>) -> Carried<'a> {
        Carried {
            labels: self.view().labels,
            wish,
            delete_timestamp: self.annotation(DELETE_TIMESTAMP),
            deletion_cost: self.annotation(POD_DELETION_COST),
        }
    }

    /// What it carries of costs; `wish` is what [`CachedPod::wish`] gave.
    pub(crate) fn cost<'a>(&'a self, wish: Option<&'a Wish>) -> Cost<'a> {
        Cost { present: self.annotation(POD_DELETION_COST), idle: self.annotation(IDLE_DELETION_COST), wish }
    }

    /// Whether its owner chooses by `pod-deletion-cost` which pods go.
    pub(crate) fn is_chosen_by_cost(&self) -> bool {
        self.controller().is_some_and(|owner| is_chosen_by_cost(&owner.kind))
    }

    /// The text of the annotation [`EVIDENCE`].
    pub(crate) fn evidence(&self) -> Option<&str> {
        self.annotation(EVIDENCE)
    }

    /// The owner that manages it.
    pub(crate) fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }

    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// When its deletion was asked for: `deletionTimestamp` is when the grace period ends.
    pub(crate) fn terminating_since(&self) -> Option<Timestamp> {
        let ends = self.metadata.deletion_timestamp.as_ref()?.0;
        let grace =
            SignedDuration::from_secs(self.metadata.deletion_grace_period_seconds.unwrap_or_default());
        Some(ends.checked_sub(grace).unwrap_or(ends))
    }

    pub(crate) fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// `status.podIPs`.
    pub(crate) fn ips(&self) -> impl Iterator<Item = &str> {
        self.status.pod_ips.iter().map(|ip| ip.ip.as_str())
    }

    /// The ports of all containers.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &CachedPort> {
        self.spec.containers.iter().flat_map(|container| &container.ports)
    }

    /// Whether it has run to its end.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether not all of its containers run yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.status.phase.as_deref() == Some("Pending")
    }

    pub(crate) fn lifecycle_condition(&self) -> Option<&LifecycleCondition> {
        self.status.conditions.lifecycle.as_ref()
    }

    /// How long `Ready` is not to be believed yet, because it is from before the gate's last change. After a very short operation
    /// the kubelet may still be about to say that the pod was not Ready; if it has said nothing for so long it has missed the
    /// change, or its clock is behind ours.
    pub(crate) fn ready_is_in_doubt_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let Conditions { gate_since, ready_since, ready, .. } = self.status.conditions;
        let (gate_since, ready_since) = (gate_since?, ready_since?);
        let left = DOUBT - now.duration_since(gate_since);
        (ready && ready_since < gate_since && left.is_positive()).then_some(left)
    }

    /// Whether the condition for people says this already. A pod in service that never had anything to tell needs no condition.
    pub(crate) fn tells(&self, explanation: &Explanation) -> bool {
        match self.lifecycle_condition() {
            Some(told) => {
                told.status == explanation.status
                    && told.reason == explanation.reason
                    && told.message == explanation.message
            }
            None => explanation.status == ConditionStatus::True && explanation.reason != "InvalidAnnotation",
        }
    }

    /// Whether the condition for people tells of the same wait, if perhaps in other words.
    pub(crate) fn tells_of(&self, explanation: &Explanation) -> bool {
        self.lifecycle_condition()
            .is_some_and(|told| told.status == explanation.status && told.reason == explanation.reason)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> PodKey {
        PodKey {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Whether `self` was stored after `other`. Resource versions of one resource are comparable as numbers
    /// (Kubernetes API concepts, "Resource versions"); one that can't be read counts as old.
    pub(crate) fn is_newer_than(&self, other: &CachedPod) -> bool {
        let number = |pod: &CachedPod| pod.resource_version().parse::<u64>().unwrap_or_default();
        number(self) > number(other)
    }
}

/// A time as labels have it.
pub(crate) fn unix_nanos(time: Timestamp) -> UnixNanos {
    UnixNanos(i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX))
}

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Resource for CachedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        corev1::Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        corev1::Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        corev1::Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        corev1::Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;
