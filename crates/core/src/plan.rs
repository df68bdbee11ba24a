//! What the controller writes: the same steps as the webhook's, and those that are the controller's alone.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::advance::settle;
use crate::gate::{available, gate_to_write};
use crate::keys::{COMPLETING, CREATING, Stage};
use crate::operations::Operations;
use crate::patch::LabelChanges;
use crate::time::UnixNanos;
use crate::view::{ConditionStatus, PodView};

/// The answer of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// Nothing speaks against it.
    Pass,
    /// Not yet, for this reason.
    Wait(String),
}

/// Who says whether an operation may start and whether its result is good.
///
/// An implementation that knows the pod can also order its operations, e.g. keep one type waiting while another is at work:
///
/// ```
/// use podward_core::{CheckResult, Checks};
///
/// struct UpdatesFirst {
///     update_is_at_work: bool,
/// }
///
/// impl Checks for UpdatesFirst {
///     fn pre_check(&self, _: &str, operation_type: &str) -> CheckResult {
///         if self.update_is_at_work && operation_type != "update" {
///             return CheckResult::Wait("an update is at work".to_owned());
///         }
///         CheckResult::Pass
///     }
///
///     fn post_check(&self, _: &str, _: &str) -> CheckResult {
///         CheckResult::Pass
///     }
/// }
/// ```
pub trait Checks {
    /// May the operation `id` of `operation_type` start?
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult;
    /// Is the result of the operation `id` good?
    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult;
}

/// No rules: every check passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRules;

impl Checks for NoRules {
    fn pre_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn post_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }
}

/// What the controller writes to a pod, in one write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Changes of labels.
    pub labels: LabelChanges,
    /// The new status of the gate's condition, if it changes.
    pub gate: Option<ConditionStatus>,
}

impl Plan {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.gate.is_none()
    }

    /// The labels of `pod` as they will be.
    #[must_use]
    pub fn labels_after(&self, pod: &PodView<'_>) -> BTreeMap<String, String> {
        let mut labels = pod.labels.clone();
        self.labels.apply(&mut labels);
        labels
    }
}

/// What the controller makes of `pod`: [`plan_labels`], the gate that follows from it, and what follows from that gate.
///
/// All of it is to be stored together or not at all (a write to `pods/status` keeps the labels that come with it). One thing is
/// left for the next write: the gate turns on only when no operation holds it in the *stored* pod, so that whoever watches sees
/// the operation end first. And the pod is not called available on a `Ready` that is older than its gate.
#[must_use]
pub fn plan(pod: &PodView<'_>, checks: &dyn Checks, now: UnixNanos) -> Plan {
    let labels = plan_labels(pod, checks, now);
    let mut after = pod.labels.clone();
    labels.apply(&mut after);
    let holds_gate = |labels: &BTreeMap<String, String>| {
        Operations::parse(labels)
            .iter()
            .any(|(_, operation)| operation.has_any(&[Stage::Preparing, Stage::Operate]))
    };
    let gate = gate_to_write(&PodView { labels: &after, ..*pod }, &Operations::parse(&after));
    match gate {
        Some(ConditionStatus::True) if holds_gate(pod.labels) => Plan { labels, gate: None },
        Some(ConditionStatus::False) => {
            let more = plan_labels(&PodView { labels: &after, gate, ..*pod }, checks, now);
            more.apply(&mut after);
            Plan { labels: LabelChanges::between(pod.labels, &after), gate }
        }
        gate => Plan { labels, gate },
    }
}

/// The label changes that the controller makes on `pod`: grants what `checks` let pass, takes every step that follows from it
/// (so that it needs no webhook), and says whether the pod is available.
///
/// A pod that is being deleted, or hasn't opted in, is left alone.
#[must_use]
pub fn plan_labels(pod: &PodView<'_>, checks: &dyn Checks, now: UnixNanos) -> LabelChanges {
    if !pod.is_controlled() || pod.terminating {
        return LabelChanges::default();
    }
    let before = Operations::parse(pod.labels);
    let mut operations = before.clone();
    let nothing_stored = Operations::default();
    settle(&mut operations, &nothing_stored, pod);
    grant(&mut operations, checks);
    settle(&mut operations, &nothing_stored, pod);
    let is_available = available(pod, &operations);
    // A pod that is not Ready is not available, whatever the reason; a gate or consumer that goes takes Ready with it.
    operations.service_available =
        if pod.ready { operations.service_available || is_available } else { false };
    let mut changes = before.changes_to(&operations, now);
    if is_available && !before.service_available {
        let done = [CREATING, COMPLETING].into_iter().filter(|key| pod.labels.contains_key(*key));
        changes.remove.extend(done.map(ToOwned::to_owned));
    }
    changes
}

fn grant(operations: &mut Operations<'_>, checks: &dyn Checks) {
    let mut permitted = Vec::new();
    for (id, operation) in &mut operations.by_id {
        let waits_to_start = operation.has(Stage::Operating) && !operation.has(Stage::PreChecked);
        let waits_to_end = operation.has(Stage::PostCheck) && !operation.has(Stage::PostChecked);
        let Some(operation_type) = operation.known_type().map(ToOwned::to_owned) else {
            continue;
        };
        if waits_to_start && checks.pre_check(id, &operation_type) == CheckResult::Pass {
            operation.put(Stage::PreChecked);
            permitted.push(operation_type);
        } else if waits_to_end && checks.post_check(id, &operation_type) == CheckResult::Pass {
            operation.put(Stage::PostChecked);
        }
    }
    operations.permissions.extend(permitted.into_iter().map(Cow::Owned));
}
