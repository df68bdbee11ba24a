//! Deserialization of a pod that drops the fields nothing reads.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use podward_core::ConditionStatus;
use podward_core::cloneset::keys::DELETE_HOLD;
use podward_core::keys::{
    AVAILABLE_CONDITIONS, BUSY_LIMITS, BUSY_REASON, BUSY_UNTIL, DELETE_TIMESTAMP, DELETION_REQUEST, EVIDENCE,
    HISTORY, HOOK_REQUESTS, IDLE_DELETION_COST, LIFECYCLE_CONDITION, POD_DELETION_COST, RESULT_REFUSED,
    RULE_DETAIL_PREFIX, SERVICE_READY_GATE, SKIP_RULES, TO_DELETE_BY,
};
use serde::{Deserialize, Deserializer};

use super::conditions::{Conditions, LifecycleCondition};

pub(super) fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        #[serde(default)]
        annotations: OurAnnotations,
        finalizers: Option<Vec<String>>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        owner_references: Option<Vec<OwnerReference>>,
    }

    let slim = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        labels: slim.labels,
        annotations: (!slim.annotations.0.is_empty()).then_some(slim.annotations.0),
        finalizers: slim.finalizers,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

#[derive(Default)]
struct OurAnnotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for OurAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const OURS: [&str; 15] = [
            DELETE_HOLD,
            HOOK_REQUESTS,
            AVAILABLE_CONDITIONS,
            BUSY_LIMITS,
            BUSY_REASON,
            BUSY_UNTIL,
            DELETE_TIMESTAMP,
            DELETION_REQUEST,
            EVIDENCE,
            HISTORY,
            IDLE_DELETION_COST,
            POD_DELETION_COST,
            RESULT_REFUSED,
            SKIP_RULES,
            TO_DELETE_BY,
        ];
        let all = Option::<BTreeMap<Cow<'de, str>, String>>::deserialize(deserializer)?.unwrap_or_default();
        let ours = all
            .into_iter()
            .filter(|(key, _)| OURS.contains(&key.as_ref()) || key.starts_with(RULE_DETAIL_PREFIX));
        Ok(OurAnnotations(ours.map(|(key, text)| (key.into_owned(), text)).collect()))
    }
}

pub(super) fn has_gate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Gate {
        condition_type: String,
    }

    let gates = Option::<Vec<Gate>>::deserialize(deserializer)?;
    Ok(gates.into_iter().flatten().any(|gate| gate.condition_type == SERVICE_READY_GATE))
}

pub(super) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

pub(super) fn slim_conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Conditions, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Condition {
        #[serde(rename = "type")]
        type_: String,
        status: String,
        #[serde(default)]
        last_transition_time: Option<Time>,
        #[serde(default)]
        reason: Option<String>,
        #[serde(default)]
        message: Option<String>,
    }

    let mut conditions = Conditions::default();
    for condition in Option::<Vec<Condition>>::deserialize(deserializer)?.into_iter().flatten() {
        let status = ConditionStatus::parse(&condition.status);
        let since = condition.last_transition_time.map(|time| time.0);
        match condition.type_.as_str() {
            SERVICE_READY_GATE => (conditions.gate, conditions.gate_since) = (Some(status), since),
            "Ready" => {
                (conditions.ready, conditions.ready_since) = (status == ConditionStatus::True, since);
            }
            "ContainersReady" => {
                (conditions.containers_ready, conditions.containers_ready_since) =
                    (status == ConditionStatus::True, since);
            }
            LIFECYCLE_CONDITION => {
                conditions.lifecycle = Some(LifecycleCondition {
                    status,
                    reason: condition.reason.unwrap_or_default(),
                    message: condition.message.unwrap_or_default(),
                });
            }
            // pkg/controller/tainteviction in kubernetes writes it before it deletes the pod.
            "DisruptionTarget" => {
                conditions.taint_eviction = status == ConditionStatus::True
                    && condition.reason.as_deref() == Some("DeletionByTaintManager");
            }
            _ => {}
        }
    }
    Ok(conditions)
}
