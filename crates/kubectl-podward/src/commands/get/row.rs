//! What is shown of one pod.

use std::collections::BTreeSet;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use podward_core::keys::{LIFECYCLE_CONDITION, Stage};
use podward_core::{ConditionStatus, Operations, Pod, UnixNanos, deadline_of_message};
use serde::Serialize;

use crate::lifecycle_message::Lifecycle;
use crate::parsed::parsed;

/// An opted-in pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodRow {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The live operations, as `id (type)`.
    pub(super) operations: Vec<String>,
    /// The reason of the lifecycle condition.
    pub(super) phase: String,
    /// The time since when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// The message of the lifecycle condition.
    pub(super) waits_for: String,
    /// The deadline of the hook that the pod waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// Whether that deadline has passed.
    pub(super) overdue: bool,
    /// Whether the pod waits.
    pub(super) waiting: bool,
    /// Whether the pod has the readiness gate.
    pub(super) has_gate: bool,
}

impl PodRow {
    /// Returns the row of a pod.
    ///
    /// # Errors
    /// When the pod cannot be parsed.
    pub(super) fn of(object: &DynamicObject, now: UnixNanos) -> Result<Self> {
        let pod: Pod = parsed(object)?;
        let view = pod.view();
        let operations = Operations::parse(view.labels);
        let live: BTreeSet<&str> =
            operations.iter().filter(|(_, operation)| operation.is_live()).map(|(id, _)| id).collect();
        let Lifecycle { status, reason: phase, message: waits_for } = Lifecycle::of(&pod, &operations);
        let in_service = status == ConditionStatus::True;
        // A pod that ended is kept for its log: nothing is to happen to it.
        let waiting = !live.is_empty() || view.terminating || !(in_service || pod.is_terminal());
        let begun = live.iter().filter_map(|id| view.labels.get(&Stage::Operating.key(id))?.parse().ok());
        let since = begun.min().map(UnixNanos).or_else(|| waits_since(object, &pod));
        let until = deadline_of_message(&waits_for).filter(|_| waiting);
        let named = live.iter().map(|id| format!("{id} ({})", operations.type_of(id).unwrap_or_default()));
        Ok(Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            operations: named.collect(),
            phase: phase.to_owned(),
            since: since.filter(|_| waiting).map(UnixNanos::to_rfc3339),
            overdue: until.is_some_and(|until| until <= now),
            until: until.map(UnixNanos::to_rfc3339),
            waits_for,
            waiting,
            has_gate: pod.has_gate(),
        })
    }
}

/// Returns since when a pod without an operation waits: its deletion, the change of its condition, or its creation.
fn waits_since(object: &DynamicObject, pod: &Pod) -> Option<UnixNanos> {
    let metadata = &object.metadata;
    let at = |time: Timestamp| i64::try_from(time.as_nanosecond()).ok().map(UnixNanos);
    if let Some(Time(ends)) = metadata.deletion_timestamp {
        let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds.unwrap_or_default());
        return at(ends.checked_sub(grace).unwrap_or(ends));
    }
    let mut conditions = pod.status.conditions.iter().flatten();
    let told = conditions.find(|it| it.type_ == LIFECYCLE_CONDITION && it.status == "False");
    let told = told.and_then(|told| UnixNanos::parse(told.last_transition_time.as_deref()?));
    told.or_else(|| at(metadata.creation_timestamp.as_ref()?.0))
}
