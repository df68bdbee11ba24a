//! A pod as it comes over the wire, reduced to what the engine and its callers read.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::keys::{AVAILABLE_CONDITIONS, SERVICE_READY_GATE};
use crate::view::{ConditionStatus, Facts, PodView};

/// A pod. Reading it skips everything else in the document (specs of containers, managed fields) without keeping it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// `metadata`.
    #[serde(default)]
    pub metadata: Metadata,
    /// `spec`.
    #[serde(default)]
    pub spec: Spec,
    /// `status`.
    #[serde(default)]
    pub status: Status,
}

/// The part of `metadata` that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Empty on CREATE with `generateName`.
    #[serde(default)]
    pub name: String,
    /// `namespace`.
    #[serde(default)]
    pub namespace: String,
    /// `uid`.
    #[serde(default)]
    pub uid: String,
    /// `labels`; `None` when the object has no such map.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// `annotations`.
    #[serde(default)]
    pub annotations: Annotations,
    /// `finalizers`.
    #[serde(default)]
    pub finalizers: Option<Vec<String>>,
    /// `deletionTimestamp`.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
}

/// The annotations that are read; `present` tells whether the object has any map of annotations.
#[derive(Clone, Debug, Default)]
pub struct Annotations {
    /// Whether `metadata.annotations` exists.
    pub present: bool,
    /// [`AVAILABLE_CONDITIONS`].
    pub available_conditions: Option<String>,
}

/// The part of `spec` that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// `readinessGates`; `None` when the object has no such list.
    #[serde(default)]
    pub readiness_gates: Option<Vec<ReadinessGate>>,
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
pub struct Status {
    /// `conditions`.
    #[serde(default)]
    pub conditions: Option<Vec<Condition>>,
}

/// One entry of `status.conditions`.
#[derive(Clone, Debug, Deserialize)]
pub struct Condition {
    /// `type`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `status`.
    pub status: String,
}

impl Pod {
    /// What the engine sees of this pod.
    #[must_use]
    pub fn view(&self) -> PodView<'_> {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        PodView {
            labels: self.metadata.labels.as_ref().unwrap_or(&NO_LABELS),
            available_conditions: self.metadata.annotations.available_conditions.as_deref(),
            finalizers: self.metadata.finalizers.as_deref().unwrap_or_default(),
            has_gate: self.has_gate(),
            gate: self.condition(SERVICE_READY_GATE),
            ready: self.condition("Ready") == Some(ConditionStatus::True),
            terminating: self.metadata.deletion_timestamp.is_some(),
            facts: Facts::default(),
        }
    }

    /// Whether `spec.readinessGates` names the gate.
    #[must_use]
    pub fn has_gate(&self) -> bool {
        self.spec.readiness_gates.iter().flatten().any(|gate| gate.condition_type == SERVICE_READY_GATE)
    }

    fn condition(&self, name: &str) -> Option<ConditionStatus> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions
            .find(|condition| condition.type_ == name)
            .map(|condition| ConditionStatus::parse(&condition.status))
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyOurs;

        impl<'de> Visitor<'de> for OnlyOurs {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of annotations")
            }

            fn visit_unit<E>(self) -> Result<Annotations, E> {
                Ok(Annotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut annotations = Annotations { present: true, ..Annotations::default() };
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    if key == AVAILABLE_CONDITIONS {
                        annotations.available_conditions = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
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
                "annotations": {"other": "z", AVAILABLE_CONDITIONS: "{}"},
                "finalizers": ["prot.podopslifecycle.kusionstack.io/1"],
                "managedFields": [{"manager": "m"}],
            },
            "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}], "containers": []},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": SERVICE_READY_GATE, "status": "False"},
            ]},
        }))
        .unwrap();
        let view = pod.view();
        assert!(view.has_gate && view.ready && !view.terminating);
        assert_eq!(view.gate, Some(ConditionStatus::False));
        assert_eq!(view.available_conditions, Some("{}"));
        assert_eq!(view.protection_finalizers().count(), 1);
    }

    #[test]
    fn nulls_and_gaps_are_fine() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"labels": null, "annotations": null, "finalizers": null},
            "spec": {"readinessGates": null},
            "status": {"conditions": null},
        }))
        .unwrap();
        assert!(!pod.view().is_controlled() && !pod.metadata.annotations.present);
        let empty: Pod = serde_json::from_str("{}").unwrap();
        assert!(empty.view().gate.is_none());
    }
}
