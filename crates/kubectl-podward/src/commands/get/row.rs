//! What is shown of one pod.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::api::DynamicObject;
use podward_core::keys::Stage;
use podward_core::{ConditionStatus, Operations, Pod, UnixNanos, deadline_of_message};
use serde::Serialize;

use crate::lifecycle_message::lifecycle_message;
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
        let waits_for = lifecycle_message(&pod, &operations);
        let state = pod.lifecycle_state();
        let phase = state.map_or("Unknown", |(_, reason)| reason);
        // A pod that ended is kept for its log: nothing is to happen to it.
        let in_service = state.is_some_and(|(status, _)| status == ConditionStatus::True);
        let waiting = !live.is_empty() || view.terminating || !(in_service || pod.is_terminal());
        let begun = live.iter().filter_map(|id| view.labels.get(&Stage::Operating.key(id))?.parse().ok());
        let since = begun.min().map(UnixNanos).or(view.facts.terminating_since).or(view.facts.created_at);
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
