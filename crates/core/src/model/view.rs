//! The view of a pod that the core decides on.

use std::collections::BTreeMap;

use super::expected_finalizers::{ExpectedFinalizers, InvalidAvailableConditions};
use super::keys::{CONTROL_LABEL, CONTROL_VALUE, PROT_FINALIZER_PREFIX, STAY_OFFLINE};
use super::time::UnixNanos;

/// The `status` of a pod condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `"True"`.
    True,
    /// `"False"`.
    False,
    /// `"Unknown"`, and any other text.
    Unknown,
}

impl ConditionStatus {
    /// Reads the text of a condition's `status`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        }
    }

    /// Returns the text of a condition's `status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

/// The parts of a pod that decide its lifecycle. It borrows, so that webhooks, controllers and tests can build it from
/// any type.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// The text of the annotation [`AVAILABLE_CONDITIONS`](crate::keys::AVAILABLE_CONDITIONS).
    pub available_conditions: Option<&'a str>,
    /// `metadata.finalizers`.
    pub finalizers: &'a [String],
    /// True if `spec.readinessGates` names [`SERVICE_READY_GATE`](crate::keys::SERVICE_READY_GATE).
    pub has_gate: bool,
    /// The status of the gate's condition, or `None` when the condition does not exist.
    pub gate: Option<ConditionStatus>,
    /// True if the condition `Ready` is `True`.
    pub ready: bool,
    /// True if `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The fields that [`plan`](crate::plan) needs. Webhooks leave most of them empty.
    pub facts: PodFacts<'a>,
}

/// The fields that are needed for hooks, busy pods and the age of Ready. Without them every decision is still safe: an
/// unknown time counts as long ago, and Ready as older than the gate.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodFacts<'a> {
    /// True if the condition `ContainersReady` is `True`.
    pub containers_ready: bool,
    /// True if the pod has no node yet.
    pub unscheduled: bool,
    /// True if the phase is `Succeeded` or `Failed`: the containers never run again, and the address of the pod may
    /// belong to another pod.
    pub finished: bool,
    /// The text of the annotation [`EVIDENCE`](crate::keys::EVIDENCE).
    pub evidence: Option<&'a str>,
    /// The text of the annotation [`HOOK_REQUESTS`](crate::keys::HOOK_REQUESTS).
    pub hook_requests: Option<&'a str>,
    /// The text of the annotation [`RESULT_REFUSED`](crate::keys::RESULT_REFUSED).
    pub result_refused: Option<&'a str>,
    /// The text of the annotation [`BUSY_UNTIL`](crate::keys::BUSY_UNTIL).
    pub busy_until: Option<&'a str>,
    /// The text of the annotation [`BUSY_REASON`](crate::keys::BUSY_REASON).
    pub busy_reason: Option<&'a str>,
    /// The text of the annotation [`BUSY_LIMITS`](crate::keys::BUSY_LIMITS).
    pub busy_limits: Option<&'a str>,
    /// The text of the annotation [`POD_DELETION_COST`](crate::keys::POD_DELETION_COST).
    pub deletion_cost: Option<&'a str>,
    /// The text of the annotation [`IDLE_DELETION_COST`](crate::keys::IDLE_DELETION_COST).
    pub idle_deletion_cost: Option<&'a str>,
    /// The text of the annotation [`DELETION_REQUEST`](crate::keys::DELETION_REQUEST).
    pub deletion_request: Option<&'a str>,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<UnixNanos>,
    /// The time of the last change of the gate's condition.
    pub gate_since: Option<UnixNanos>,
    /// The time of the last change of the condition `Ready`.
    pub ready_since: Option<UnixNanos>,
    /// The time of the last change of the condition `ContainersReady`.
    pub containers_ready_since: Option<UnixNanos>,
    /// The time of the delete: `metadata.deletionTimestamp` without the grace period that it includes.
    pub terminating_since: Option<UnixNanos>,
}

impl<'a> PodView<'a> {
    /// Returns whether the pod has opted in.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.labels.get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE)
    }

    /// Returns the finalizers of consumers on the pod. Each consumer still uses the pod.
    pub fn protection_finalizers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.finalizers
            .iter()
            .map(String::as_str)
            .filter(|finalizer| finalizer.starts_with(PROT_FINALIZER_PREFIX))
    }

    /// Returns whether the pod is to stay out of service between operations.
    #[must_use]
    pub fn stays_offline(&self) -> bool {
        self.labels.contains_key(STAY_OFFLINE)
    }

    /// Returns the finalizers that must be present before the pod is available.
    ///
    /// # Errors
    /// Fails when the annotation cannot be read.
    pub fn expected_finalizers(&self) -> Result<ExpectedFinalizers, InvalidAvailableConditions> {
        self.available_conditions.map_or_else(|| Ok(ExpectedFinalizers::default()), ExpectedFinalizers::parse)
    }

    /// Returns whether every expected finalizer is present. Returns false when the annotation cannot be read; the
    /// condition of the pod reports the error.
    #[must_use]
    pub fn has_expected_finalizers(&self) -> bool {
        self.expected_finalizers().is_ok_and(|expected| expected.missing(self.finalizers).next().is_none())
    }
}
