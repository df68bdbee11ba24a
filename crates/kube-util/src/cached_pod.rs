//! The pod as the controllers cache it: only the fields that `podward-core` reads, so that thousands of pods need
//! little memory.

mod conditions;
mod readiness;
mod reading;
mod version;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use podward_core::busy::{DeletionCost, is_chosen_by_cost};
use podward_core::cloneset::{self, DeleteHold};
use podward_core::deletion::request::{DeletionMarks, DeletionRequest};
use podward_core::history::{self, LabelWrite, OperationRecord};
use podward_core::keys::{
    AVAILABLE_CONDITIONS, BUSY_LIMITS, BUSY_REASON, BUSY_UNTIL, DELETE_TIMESTAMP, DELETION_REQUEST, EVIDENCE,
    HISTORY, HOOK_REQUESTS, IDLE_DELETION_COST, POD_DELETION_COST, RESULT_REFUSED, SKIP_RULES,
};
use podward_core::rules::{RulePod, SkippedRules};
use podward_core::{Explanation, LabelChanges, PodFacts, PodView, UnixNanos};
use serde::Deserialize;

use crate::clock::unix_nanos;
use crate::pod_key::PodKey;
use conditions::Conditions;
pub use conditions::LifecycleCondition;
use reading::{has_gate, null_is_empty, slim_conditions, slim_metadata};

/// A pod without the fields that Podward does not read: containers, volumes, managed fields and other annotations. They
/// are dropped during deserialization. A `CachedPod` is never written back: writes are patches.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = corev1::Pod)]
pub struct CachedPod {
    #[serde(deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: CachedSpec,
    #[serde(default)]
    status: CachedStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct CachedSpec {
    #[serde(default, deserialize_with = "has_gate")]
    readiness_gates: bool,
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    containers: Vec<CachedContainer>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct CachedContainer {
    #[serde(default, deserialize_with = "null_is_empty")]
    ports: Vec<CachedPort>,
}

/// A port that a container declares.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CachedPort {
    #[serde(default)]
    /// The name, empty if the port has none.
    pub name: String,
    /// The number.
    pub container_port: u16,
    /// `TCP`, `UDP` or `SCTP`; `None` means TCP.
    #[serde(default)]
    pub protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct CachedStatus {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "startTime")]
    start_time: Option<Time>,
    #[serde(default, rename = "podIPs", deserialize_with = "null_is_empty")]
    pod_ips: Vec<CachedIp>,
    #[serde(default, deserialize_with = "slim_conditions")]
    conditions: Conditions,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct CachedIp {
    ip: String,
}

impl CachedPod {
    /// Returns the labels. Annotations and conditions are read by [`CachedPod::view`].
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
    }

    /// Returns the pod as `podward-core` reads it.
    #[must_use]
    pub fn view(&self) -> PodView<'_> {
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

    fn facts(&self) -> PodFacts<'_> {
        let conditions = &self.status.conditions;
        let nanos = |time: Option<Timestamp>| time.map(unix_nanos);
        PodFacts {
            containers_ready: conditions.containers_ready,
            unscheduled: self.node_name().is_none(),
            finished: self.is_terminal(),
            evidence: self.evidence(),
            hook_requests: self.annotation(HOOK_REQUESTS),
            result_refused: self.annotation(RESULT_REFUSED),
            busy_until: self.annotation(BUSY_UNTIL),
            busy_reason: self.annotation(BUSY_REASON),
            busy_limits: self.annotation(BUSY_LIMITS),
            deletion_cost: self.annotation(POD_DELETION_COST),
            idle_deletion_cost: self.annotation(IDLE_DELETION_COST),
            deletion_request: self.annotation(DELETION_REQUEST),
            created_at: nanos(self.created_at()),
            gate_since: nanos(conditions.gate_since),
            ready_since: nanos(conditions.ready_since),
            containers_ready_since: nanos(conditions.containers_ready_since),
            terminating_since: nanos(self.terminating_since()),
        }
    }

    /// Returns true if kube-controller-manager deletes the pod because of a NoExecute taint of its node.
    #[must_use]
    pub fn is_taint_eviction(&self) -> bool {
        self.status.conditions.taint_eviction
    }

    /// Returns a pod of which only the key is known, for messages and events.
    #[must_use]
    pub fn named(key: &PodKey) -> CachedPod {
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

    /// Returns why the deletion of the pod that `requester` has requested waits for the hook of its CloneSet.
    #[must_use]
    pub fn waits_for_clone_set(&self, requester: &str) -> Option<String> {
        let (owner, view) = (self.controller()?, self.view());
        let hold = DeleteHold::on(self.annotation(cloneset::keys::DELETE_HOLD)?, &owner.kind, &owner.name)?;
        hold.waits(view.labels, view.finalizers, requester)
    }

    /// Returns the annotations whose keys begin with `prefix`.
    pub fn annotations_below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.metadata.annotations.iter().flatten();
        all.filter(move |(key, _)| key.starts_with(prefix)).map(|(key, text)| (key.as_str(), text.as_str()))
    }

    /// Parses the annotation [`SKIP_RULES`]. Call it once for each version of the pod.
    #[must_use]
    pub fn skipped_rules(&self) -> SkippedRules {
        self.annotation(SKIP_RULES).map(SkippedRules::parse).unwrap_or_default()
    }

    /// Returns the pod as PodTransitionRules read it. `skip` is the result of [`CachedPod::skipped_rules`].
    #[must_use]
    pub fn subject<'a>(&'a self, skip: &'a SkippedRules) -> RulePod<'a> {
        RulePod {
            namespace: self.namespace(),
            name: self.metadata.name.as_deref().unwrap_or_default(),
            uid: self.uid(),
            labels: self.labels(),
            skip: Some(skip),
        }
    }

    /// Returns the deletion request of the pod, or `None` if it has none or an unreadable one.
    #[must_use]
    pub fn deletion_request(&self) -> Option<DeletionRequest> {
        self.annotation(DELETION_REQUEST).and_then(DeletionRequest::parse)
    }

    /// Returns what the pod stores of its deletion request. `request` is the result of [`CachedPod::deletion_request`].
    #[must_use]
    pub fn carried<'a>(&'a self, request: Option<&'a DeletionRequest>) -> DeletionMarks<'a> {
        DeletionMarks {
            labels: self.view().labels,
            request,
            delete_timestamp: self.annotation(DELETE_TIMESTAMP),
            deletion_cost: self.annotation(POD_DELETION_COST),
        }
    }

    /// Returns what the pod stores of its deletion cost. `request` is the result of [`CachedPod::deletion_request`].
    #[must_use]
    pub fn cost<'a>(&'a self, request: Option<&'a DeletionRequest>) -> DeletionCost<'a> {
        DeletionCost {
            present: self.annotation(POD_DELETION_COST),
            idle: self.annotation(IDLE_DELETION_COST),
            request,
        }
    }

    /// Returns true if the owner of the pod selects pods to delete by `pod-deletion-cost`.
    #[must_use]
    pub fn is_chosen_by_cost(&self) -> bool {
        self.controller().is_some_and(|owner| is_chosen_by_cost(&owner.kind))
    }

    /// Returns the value of the annotation [`EVIDENCE`].
    #[must_use]
    pub fn evidence(&self) -> Option<&str> {
        self.annotation(EVIDENCE)
    }

    /// Returns the new value of the annotation [`HISTORY`] for a write of `changes` at the time `now`, or `None` if it does
    /// not change. `writer` is the user in whose name the write is made, if it is not Podward.
    #[must_use]
    pub fn history_with(
        &self,
        changes: &LabelChanges,
        writer: Option<&str>,
        now: UnixNanos,
    ) -> Option<String> {
        let mut after = self.labels().clone();
        changes.apply(&mut after);
        history::record(&LabelWrite {
            before: self.labels(),
            after: &after,
            history: self.annotation(HISTORY),
            evidence: self.evidence(),
            writer,
            now,
        })
    }

    /// Returns the operations of the pod, which is being deleted; see [`history::of_deleted`].
    #[must_use]
    pub fn records_at_end(&self, now: UnixNanos) -> Vec<OperationRecord> {
        history::of_deleted(self.labels(), self.annotation(HISTORY), self.evidence(), now)
    }

    /// Returns the owner reference that is marked as the controller.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }

    /// Returns `metadata.creationTimestamp`.
    #[must_use]
    pub fn created_at(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Returns `metadata.deletionTimestamp`: the time at which the grace period ends. `None` if the pod is not terminating.
    #[must_use]
    pub fn grace_ends(&self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp.as_ref().map(|time| time.0)
    }

    /// Returns the time of the delete request: `deletionTimestamp` less the grace period. `None` if the pod is not
    /// terminating.
    #[must_use]
    pub fn terminating_since(&self) -> Option<Timestamp> {
        let ends = self.grace_ends()?;
        let grace =
            SignedDuration::from_secs(self.metadata.deletion_grace_period_seconds.unwrap_or_default());
        Some(ends.checked_sub(grace).unwrap_or(ends))
    }

    /// Returns the name of the node, or `None` while the pod is not scheduled.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// Returns the addresses in `status.podIPs`.
    pub fn ips(&self) -> impl Iterator<Item = &str> {
        self.status.pod_ips.iter().map(|ip| ip.ip.as_str())
    }

    /// Returns the declared ports of all containers.
    pub fn ports(&self) -> impl Iterator<Item = &CachedPort> {
        self.spec.containers.iter().flat_map(|container| &container.ports)
    }

    /// Returns true if the phase is Succeeded or Failed.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Returns true if the phase is Pending.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.status.phase.as_deref() == Some("Pending")
    }

    /// Returns the condition `podward.io/lifecycle`, or `None` if the pod has none.
    #[must_use]
    pub fn lifecycle_condition(&self) -> Option<&LifecycleCondition> {
        self.status.conditions.lifecycle.as_ref()
    }

    /// Returns true if the lifecycle condition already says `explanation`.
    #[must_use]
    pub fn has_condition(&self, explanation: &Explanation) -> bool {
        match self.lifecycle_condition() {
            Some(told) => {
                told.status == explanation.status
                    && told.reason == explanation.reason
                    && told.message == explanation.message
            }
            None => explanation.needs_no_condition(),
        }
    }

    /// Returns true if the lifecycle condition has the status and the reason of `explanation`, with any message.
    #[must_use]
    pub fn has_condition_reason(&self, explanation: &Explanation) -> bool {
        self.lifecycle_condition()
            .is_some_and(|told| told.status == explanation.status && told.reason == explanation.reason)
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the namespace and the name.
    #[must_use]
    pub fn key(&self) -> PodKey {
        PodKey {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Returns the UID, empty if the pod has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
