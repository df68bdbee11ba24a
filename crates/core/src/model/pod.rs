//! The fields of a pod that the core and its callers read.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::deletion_request::DeletionRequest;
use super::keys::{
    AVAILABLE_CONDITIONS, BREAK_GLASS, BUSY_LIMITS, BUSY_REASON, BUSY_UNTIL, DELETE_TIMESTAMP,
    DELETION_REQUEST, EVIDENCE, HISTORY, HOOK_REQUESTS, IDLE_DELETION_COST, LIFECYCLE_CONDITION, MIRROR_POD,
    POD_DELETION_COST, RESULT_REFUSED, SERVICE_READY_GATE, TO_DELETE_BY,
};
use super::time::UnixNanos;
use super::view::{ConditionStatus, PodFacts, PodView};
use crate::cloneset::keys::DELETE_HOLD;

/// A pod. Deserialization skips all other fields (container specs and others) without storing them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// `metadata`.
    #[serde(default)]
    pub metadata: PodMetadata,
    /// `spec`.
    #[serde(default)]
    pub spec: PodSpec,
    /// `status`.
    #[serde(default)]
    pub status: PodStatus,
}

/// The part of `metadata` that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Empty on CREATE with `generateName`.
    #[serde(default)]
    pub name: String,
    /// `namespace`.
    #[serde(default)]
    pub namespace: String,
    /// `uid`.
    #[serde(default)]
    pub uid: String,
    /// `resourceVersion`.
    #[serde(default)]
    pub resource_version: String,
    /// `labels`; `None` when the object has no such map.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// `annotations`.
    #[serde(default)]
    pub annotations: PodAnnotations,
    /// `finalizers`.
    #[serde(default)]
    pub finalizers: Option<Vec<String>>,
    /// `deletionTimestamp`.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    /// `ownerReferences`.
    #[serde(default)]
    pub owner_references: Option<Vec<PodOwner>>,
    /// `managedFields`, without the fields.
    #[serde(default)]
    pub managed_fields: Option<Vec<FieldManager>>,
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FieldManager {
    /// `Apply` or `Update`.
    #[serde(default)]
    pub operation: String,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOwner {
    /// `apiVersion`.
    #[serde(default)]
    pub api_version: String,
    /// `kind`.
    #[serde(default)]
    pub kind: String,
    /// `name`.
    #[serde(default)]
    pub name: String,
    /// `uid`.
    #[serde(default)]
    pub uid: String,
    /// True if this owner manages the object.
    #[serde(default)]
    pub controller: Option<bool>,
}

/// The annotations that are read.
#[derive(Clone, Debug, Default)]
pub struct PodAnnotations {
    /// True if the object has `metadata.annotations`.
    pub present: bool,
    /// [`AVAILABLE_CONDITIONS`].
    pub available_conditions: Option<String>,
    /// [`DELETION_REQUEST`].
    pub deletion_request: Option<String>,
    /// [`TO_DELETE_BY`].
    pub to_delete_by: Option<String>,
    /// [`DELETE_TIMESTAMP`].
    pub delete_timestamp: Option<String>,
    /// [`BREAK_GLASS`].
    pub break_glass: Option<String>,
    /// [`BUSY_UNTIL`].
    pub busy_until: Option<String>,
    /// [`BUSY_REASON`].
    pub busy_reason: Option<String>,
    /// [`BUSY_LIMITS`].
    pub busy_limits: Option<String>,
    /// [`POD_DELETION_COST`].
    pub deletion_cost: Option<String>,
    /// [`IDLE_DELETION_COST`].
    pub idle_deletion_cost: Option<String>,
    /// [`EVIDENCE`].
    pub evidence: Option<String>,
    /// [`HISTORY`].
    pub history: Option<String>,
    /// [`HOOK_REQUESTS`].
    pub hook_requests: Option<String>,
    /// True if [`RESULT_REFUSED`] is present.
    pub has_result_refused: bool,
    /// True if [`MIRROR_POD`] is present.
    pub is_mirror: bool,
    /// [`DELETE_HOLD`](crate::cloneset::keys::DELETE_HOLD).
    pub delete_hold: Option<String>,
}

/// The part of `spec` that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// `readinessGates`; `None` when the object has no such list.
    #[serde(default)]
    pub readiness_gates: Option<Vec<ReadinessGate>>,
    /// `nodeName`; `None` or empty until the pod is scheduled.
    #[serde(default)]
    pub node_name: Option<String>,
}

/// One entry of `spec.readinessGates`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadinessGate {
    /// `conditionType`.
    pub condition_type: String,
}

/// The part of `status` that is read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodStatus {
    /// `phase`.
    #[serde(default)]
    pub phase: Option<String>,
    /// `conditions`.
    #[serde(default)]
    pub conditions: Option<Vec<PodCondition>>,
}

/// One entry of `status.conditions`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// `type`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `status`.
    pub status: String,
    /// `reason`.
    #[serde(default)]
    pub reason: Option<String>,
    /// `lastTransitionTime`.
    #[serde(default)]
    pub last_transition_time: Option<String>,
    /// `message`.
    #[serde(default)]
    pub message: Option<String>,
}

impl Pod {
    /// Returns the view of this pod that the core decides on.
    #[must_use]
    pub fn view(&self) -> PodView<'_> {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        let annotations = &self.metadata.annotations;
        PodView {
            labels: self.metadata.labels.as_ref().unwrap_or(&NO_LABELS),
            available_conditions: annotations.available_conditions.as_deref(),
            finalizers: self.metadata.finalizers.as_deref().unwrap_or_default(),
            has_gate: self.has_gate(),
            gate: self.condition(SERVICE_READY_GATE),
            ready: self.condition("Ready") == Some(ConditionStatus::True),
            terminating: self.metadata.deletion_timestamp.is_some(),
            facts: PodFacts {
                finished: self.is_terminal(),
                hook_requests: annotations.hook_requests.as_deref(),
                busy_until: annotations.busy_until.as_deref(),
                busy_reason: annotations.busy_reason.as_deref(),
                busy_limits: annotations.busy_limits.as_deref(),
                deletion_cost: annotations.deletion_cost.as_deref(),
                idle_deletion_cost: annotations.idle_deletion_cost.as_deref(),
                deletion_request: annotations.deletion_request.as_deref(),
                gate_since: self.gate_since(),
                ready_since: self.since("Ready"),
                ..PodFacts::default()
            },
        }
    }

    /// Returns whether `spec.readinessGates` names the gate.
    #[must_use]
    pub fn has_gate(&self) -> bool {
        self.spec.readiness_gates.iter().flatten().any(|gate| gate.condition_type == SERVICE_READY_GATE)
    }

    /// Returns the owner that manages the pod.
    #[must_use]
    pub fn controller(&self) -> Option<&PodOwner> {
        self.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }

    /// Returns the name of the node, or `None` until the pod is scheduled.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns whether the pod has finished.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Returns the deletion request, or `None` when there is none or it cannot be read.
    #[must_use]
    pub fn deletion_request(&self) -> Option<DeletionRequest> {
        self.metadata.annotations.deletion_request.as_deref().and_then(DeletionRequest::parse)
    }

    /// Returns the time of the last change of the readiness gate's condition.
    #[must_use]
    pub fn gate_since(&self) -> Option<UnixNanos> {
        self.since(SERVICE_READY_GATE)
    }

    /// Returns the message of the condition [`LIFECYCLE_CONDITION`]: what the pod waits for.
    #[must_use]
    pub fn lifecycle_message(&self) -> Option<&str> {
        self.find_condition(LIFECYCLE_CONDITION)?.message.as_deref()
    }

    /// Returns the status and the reason of the condition [`LIFECYCLE_CONDITION`].
    #[must_use]
    pub fn lifecycle_state(&self) -> Option<(ConditionStatus, &str)> {
        let condition = self.find_condition(LIFECYCLE_CONDITION)?;
        Some((ConditionStatus::parse(&condition.status), condition.reason.as_deref().unwrap_or_default()))
    }

    fn condition(&self, name: &str) -> Option<ConditionStatus> {
        self.find_condition(name).map(|condition| ConditionStatus::parse(&condition.status))
    }

    fn since(&self, name: &str) -> Option<UnixNanos> {
        self.find_condition(name)?.last_transition_time.as_deref().and_then(UnixNanos::parse)
    }

    fn find_condition(&self, name: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.type_ == name)
    }
}

impl<'de> Deserialize<'de> for PodAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyOurs;

        impl<'de> Visitor<'de> for OnlyOurs {
            type Value = PodAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of annotations")
            }

            fn visit_unit<E>(self) -> Result<PodAnnotations, E> {
                Ok(PodAnnotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PodAnnotations, A::Error> {
                let mut annotations = PodAnnotations { present: true, ..PodAnnotations::default() };
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    match key.as_ref() {
                        AVAILABLE_CONDITIONS => annotations.available_conditions = Some(map.next_value()?),
                        DELETION_REQUEST => annotations.deletion_request = Some(map.next_value()?),
                        TO_DELETE_BY => annotations.to_delete_by = Some(map.next_value()?),
                        DELETE_TIMESTAMP => annotations.delete_timestamp = Some(map.next_value()?),
                        BREAK_GLASS => annotations.break_glass = Some(map.next_value()?),
                        BUSY_UNTIL => annotations.busy_until = Some(map.next_value()?),
                        POD_DELETION_COST => annotations.deletion_cost = Some(map.next_value()?),
                        IDLE_DELETION_COST => annotations.idle_deletion_cost = Some(map.next_value()?),
                        BUSY_LIMITS => annotations.busy_limits = Some(map.next_value()?),
                        BUSY_REASON => annotations.busy_reason = Some(map.next_value()?),
                        EVIDENCE => annotations.evidence = Some(map.next_value()?),
                        HISTORY => annotations.history = Some(map.next_value()?),
                        DELETE_HOLD => annotations.delete_hold = Some(map.next_value()?),
                        HOOK_REQUESTS => annotations.hook_requests = Some(map.next_value()?),
                        other => {
                            annotations.is_mirror |= other == MIRROR_POD;
                            annotations.has_result_refused |= other == RESULT_REFUSED;
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(annotations)
            }
        }

        deserializer.deserialize_any(OnlyOurs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_counts() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "b", "uid": "c", "labels": {"x": "y"},
                "annotations": {
                    "other": "z", AVAILABLE_CONDITIONS: "{}", BREAK_GLASS: "why", MIRROR_POD: "hash",
                    DELETION_REQUEST: r#"{"kind":"Evict","requestedBy":"jane","requestedAt":7}"#,
                },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2", "controller": true},
                ],
                "finalizers": ["prot.podopslifecycle.kusionstack.io/1"],
                "managedFields": [{"manager": "m"}],
            },
            "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}], "containers": [], "nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": SERVICE_READY_GATE, "status": "False", "lastTransitionTime": "1970-01-01T00:00:01Z"},
                {"type": LIFECYCLE_CONDITION, "status": "False", "message": "waits"},
            ]},
        }))
        .unwrap();
        let view = pod.view();
        assert!(view.has_gate && view.ready && !view.terminating);
        assert_eq!(view.gate, Some(ConditionStatus::False));
        assert_eq!(view.available_conditions, Some("{}"));
        assert_eq!(view.protection_finalizers().count(), 1);
        assert_eq!(pod.controller().unwrap().kind, "ReplicaSet");
        assert_eq!(
            (pod.node_name(), pod.is_terminal(), pod.lifecycle_message()),
            (Some("n1"), false, Some("waits"))
        );
        assert_eq!(pod.gate_since(), Some(UnixNanos(1_000_000_000)));
        assert_eq!(pod.deletion_request().unwrap().requested_by, "jane");
        assert!(pod.metadata.annotations.is_mirror);
        assert_eq!(pod.metadata.annotations.break_glass.as_deref(), Some("why"));
    }

    #[test]
    fn nulls_and_gaps_are_fine() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"labels": null, "annotations": null, "finalizers": null, "ownerReferences": null},
            "spec": {"readinessGates": null, "nodeName": null},
            "status": {"conditions": null},
        }))
        .unwrap();
        assert!(!pod.view().is_controlled() && !pod.metadata.annotations.present);
        let empty: Pod = serde_json::from_str("{}").unwrap();
        assert!(empty.view().gate.is_none());
    }
}
