//! What the engine sees of a pod.

use std::collections::BTreeMap;

use crate::expected::{ExpectedFinalizers, InvalidAvailableConditions};
use crate::keys::{CONTROL_LABEL, CONTROL_VALUE, PROT_FINALIZER_PREFIX, STAY_OFFLINE};
use crate::time::UnixNanos;

/// The `status` of a pod condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `"True"`.
    True,
    /// `"False"`.
    False,
    /// `"Unknown"`, and whatever else may stand there.
    Unknown,
}

impl ConditionStatus {
    /// Reads the wire's text; what is neither `True` nor `False` is `Unknown`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        }
    }

    /// The wire's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

/// A pod, reduced to what decides its life. Borrowed, so that webhooks, controllers and tests make it from whatever they hold.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// The text of the annotation [`AVAILABLE_CONDITIONS`](crate::keys::AVAILABLE_CONDITIONS), if it is there.
    pub available_conditions: Option<&'a str>,
    /// `metadata.finalizers`.
    pub finalizers: &'a [String],
    /// Whether `spec.readinessGates` names [`SERVICE_READY_GATE`](crate::keys::SERVICE_READY_GATE).
    pub has_gate: bool,
    /// The condition behind that gate, if it is there.
    pub gate: Option<ConditionStatus>,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// What only [`plan`](crate::plan) asks for; webhooks leave it empty.
    pub facts: Facts<'a>,
}

/// What is asked about a pod only where hooks take part in its life, or its application says that it is busy. Without it nothing is unsafe; times that aren't known count as
/// long ago.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// Whether the condition `ContainersReady` is `True`.
    pub containers_ready: bool,
    /// The text of the annotation [`EVIDENCE`](crate::keys::EVIDENCE).
    pub evidence: Option<&'a str>,
    /// The text of the annotation [`ASKED`](crate::keys::ASKED).
    pub asked: Option<&'a str>,
    /// The text of the annotation [`REFUSED`](crate::keys::REFUSED).
    pub refused: Option<&'a str>,
    /// The text of the annotation [`BUSY_UNTIL`](crate::keys::BUSY_UNTIL).
    pub busy_until: Option<&'a str>,
    /// The text of the annotation [`BUSY_REASON`](crate::keys::BUSY_REASON).
    pub busy_reason: Option<&'a str>,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<UnixNanos>,
    /// When the gate's condition last changed.
    pub gate_since: Option<UnixNanos>,
    /// When the condition `Ready` last changed.
    pub ready_since: Option<UnixNanos>,
    /// When the condition `ContainersReady` last changed.
    pub containers_ready_since: Option<UnixNanos>,
    /// When the deletion was asked for: `metadata.deletionTimestamp` without the grace period that it includes.
    pub terminating_since: Option<UnixNanos>,
}

impl<'a> PodView<'a> {
    /// Whether the pod has opted in.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.labels.get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE)
    }

    /// The consumers' finalizers on the pod: each says that somebody still sends it traffic.
    pub fn protection_finalizers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.finalizers
            .iter()
            .map(String::as_str)
            .filter(|finalizer| finalizer.starts_with(PROT_FINALIZER_PREFIX))
    }

    /// Whether the pod is told to stay out of service between operations.
    #[must_use]
    pub fn stays_offline(&self) -> bool {
        self.labels.contains_key(STAY_OFFLINE)
    }

    /// The finalizers that must be there before the pod is available.
    ///
    /// # Errors
    /// When the annotation can't be read.
    pub fn expected_finalizers(&self) -> Result<ExpectedFinalizers, InvalidAvailableConditions> {
        self.available_conditions.map_or_else(|| Ok(ExpectedFinalizers::default()), ExpectedFinalizers::parse)
    }

    /// Whether every expected finalizer is there. An annotation that can't be read expects something that nobody can tell, so
    /// the answer is no; what is wrong stands in the pod's condition.
    #[must_use]
    pub fn has_expected_finalizers(&self) -> bool {
        self.expected_finalizers().is_ok_and(|expected| expected.missing(self.finalizers).next().is_none())
    }
}
