//! The removal of everything that only Podward writes from a pod, before Podward is uninstalled.
//!
//! Without Podward, its finalizers would keep a deleted pod, and its gate would keep a pod from being Ready. What
//! others write stays: announcements of operations (they begin again when Podward is installed again), labels that keep
//! a pod offline, finalizers and expectations of other consumers.

use std::collections::{BTreeMap, BTreeSet};

use crate::busy::{DeletionCost, restore_cost};
use crate::deletion::request::{DeletionIntent, DeletionMarks, cancel, intent};
use crate::model::deletion_request::DeletionRequest;
use crate::model::expected_finalizers::with_consumers;
use crate::model::hook_keys::is_hook_finalizer;
use crate::model::keys::{
    AVAILABLE_CONDITIONS, BUSY_LIMITS, DELETE_OPERATION, DELETE_TIMESTAMP, DELETION_REQUEST, EVIDENCE,
    HISTORY, HOOK_REQUESTS, IDLE_DELETION_COST, Key, POD_DELETION_COST, RESULT_REFUSED, Stage,
};
use crate::model::operations::Operations;
use crate::model::view::{ConditionStatus, PodView};

/// The parts of a pod that matter for the release.
#[derive(Clone, Copy, Debug)]
pub struct ReleasePod<'a> {
    /// The pod. Its facts are not needed.
    pub pod: PodView<'a>,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// True if the pod has the condition [`LIFECYCLE_CONDITION`](crate::keys::LIFECYCLE_CONDITION).
    pub has_condition: bool,
    /// True if the pod has finished, so that it is never Ready again.
    pub is_finished: bool,
}

/// The treatment of finalizers of consumers that are not hooks. Their owners remove them, with or without Podward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherFinalizers {
    /// They stay.
    #[default]
    Keep,
    /// They are removed because their owner does not exist any more.
    Remove,
}

/// The changes to write in one write, and what to report about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The labels to remove.
    pub labels: BTreeSet<String>,
    /// The annotations to write with their new text; `None` removes the annotation.
    pub annotations: BTreeMap<&'static str, Option<String>>,
    /// The finalizers to remove.
    pub finalizers: Vec<String>,
    /// True if the condition behind the readiness gate becomes True.
    pub opens_gate: bool,
    /// True if the condition [`LIFECYCLE_CONDITION`](crate::keys::LIFECYCLE_CONDITION) is removed.
    pub removes_condition: bool,
    /// The deletion request that is dropped. The pod stays until it is deleted again.
    pub dropped_request: Option<DroppedRequest>,
    /// The ids of operations that continue without their permission, with the pod in service again.
    pub interrupted: Vec<String>,
    /// The finalizers of other consumers that stay.
    pub third_parties: Vec<String>,
    /// True if the gate stays off, because a label keeps the pod offline.
    pub stays_offline: bool,
}

/// A deletion request that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRequest {
    /// The request; `None` when it could not be read.
    pub request: Option<DeletionRequest>,
}

impl Release {
    /// Returns true if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.annotations.is_empty()
            && self.finalizers.is_empty()
            && !self.opens_gate
            && !self.removes_condition
    }
}

/// Returns the changes that let a pod live without Podward, whether it has opted in or not.
///
/// # Guarantees
/// - What others write does not change.
/// - Applied to a pod that has these changes it returns nothing to write.
/// - When Podward is installed again, it treats the pod as a new one.
#[must_use]
pub fn release(subject: &ReleasePod<'_>, third_parties: OtherFinalizers) -> Release {
    let pod = &subject.pod;
    let mut release = Release {
        stays_offline: pod.has_gate && pod.stays_offline() && pod.gate != Some(ConditionStatus::True),
        removes_condition: subject.has_condition,
        ..Release::default()
    };
    drop_request(subject, &mut release);
    let operations = Operations::parse(pod.labels);
    for key in pod.labels.keys() {
        if goes(key, &operations) {
            release.labels.insert(key.clone());
        }
    }
    if !pod.terminating && !subject.is_finished {
        let begun = operations.iter().filter(|(_, operation)| {
            operation.is_active() && operation.has_any(&[Stage::PreChecked, Stage::Preparing, Stage::Operate])
        });
        let begun = begun.map(|(id, _)| id.to_owned());
        // The operations that continue: neither undone, nor of a dropped request.
        release.interrupted =
            begun.filter(|id| !release.labels.contains(&Stage::Operating.key(id))).collect();
        // Nothing turns the gate on later. A label that keeps the pod offline is respected.
        release.opens_gate = pod.has_gate && pod.gate != Some(ConditionStatus::True) && !pod.stays_offline();
    }
    for finalizer in pod.protection_finalizers() {
        if is_hook_finalizer(finalizer) || third_parties == OtherFinalizers::Remove {
            release.finalizers.push(finalizer.to_owned());
        } else {
            release.third_parties.push(finalizer.to_owned());
        }
    }
    let records = [HOOK_REQUESTS, EVIDENCE, RESULT_REFUSED, BUSY_LIMITS, HISTORY]
        .into_iter()
        .filter(|key| subject.annotations.contains_key(*key));
    release.annotations.extend(records.map(|key| (key, None)));
    release.annotations.extend(restored_cost(subject));
    // An annotation that cannot be read stays: it blocks nothing without Podward.
    if let Ok(Some(text)) = with_consumers(pod.available_conditions, []) {
        release.annotations.insert(AVAILABLE_CONDITIONS, text);
    }
    release
}

/// Returns the annotations that restore the deletion cost which Podward has changed: nothing would do it later.
fn restored_cost(subject: &ReleasePod<'_>) -> Vec<(&'static str, Option<String>)> {
    let annotation = |key: &str| subject.annotations.get(key).map(String::as_str);
    let request = annotation(DELETION_REQUEST).and_then(DeletionRequest::parse);
    restore_cost(&DeletionCost {
        present: annotation(POD_DELETION_COST),
        idle: annotation(IDLE_DELETION_COST),
        request: request.as_ref(),
    })
}

/// Drops a request that Podward has recorded, with its operation. A label that requests a deletion and is not recorded
/// yet stays, and so does an operation `pod-delete` without a request.
fn drop_request(subject: &ReleasePod<'_>, release: &mut Release) {
    let annotation = |key: &str| subject.annotations.get(key).map(String::as_str);
    let text = annotation(DELETION_REQUEST);
    let request = text.and_then(DeletionRequest::parse);
    let carried = DeletionMarks {
        labels: subject.pod.labels,
        request: request.as_ref(),
        delete_timestamp: annotation(DELETE_TIMESTAMP),
        deletion_cost: annotation(POD_DELETION_COST),
    };
    if text.is_none() && matches!(intent(&carried), DeletionIntent::None | DeletionIntent::Begin) {
        return;
    }
    let changes = cancel(&carried);
    release.labels.extend(changes.labels.remove);
    // Remove all labels of the operation: without Podward nothing applies an undo label.
    let operation = Stage::ALL.map(|stage| stage.key(DELETE_OPERATION));
    release.labels.extend(operation.into_iter().filter(|key| subject.pod.labels.contains_key(key)));
    let present = |key: &&'static str| subject.annotations.contains_key(*key);
    release.annotations.extend(changes.annotations.into_iter().filter(|(key, _)| present(key)));
    if text.is_some() && !subject.pod.terminating && !subject.is_finished {
        release.dropped_request = Some(DroppedRequest { request });
    }
}

/// Returns whether the label is removed: labels that only Podward writes, and all labels of operations that are
/// finished or cancelled.
fn goes(key: &str, operations: &Operations<'_>) -> bool {
    match Key::parse(key) {
        parsed if parsed.is_protected() => true,
        Key::Stage(_, id) => operations.get(id).is_some_and(|operation| {
            let is_undone = operation.has(Stage::UndoOperationType);
            let is_finished = operation.is_live() && !operation.has(Stage::Operating);
            is_undone || is_finished
        }),
        _ => false,
    }
}
