//! The changes that record, replace, postpone and withdraw a deletion request.

use std::collections::BTreeMap;

use crate::model::keys::{
    DELETE_OPERATION, DELETE_TIMESTAMP, DELETE_TYPE, DELETION_REQUEST, POD_DELETION_COST,
    PREPARING_TO_DELETE, Stage, TO_DELETE, TO_DELETE_BY,
};
use crate::model::label_changes::LabelChanges;
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;
use crate::protocol::preparing_to_delete::any_announced;

use crate::model::deletion_request::{DeletionRequest, LOWEST_COST};

use super::carried::DeletionMarks;
use super::intent::{DeletionIntent, intent};

/// The labels and annotations of one write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionRequestChanges {
    /// The label changes.
    pub labels: LabelChanges,
    /// The annotations to write with their new text; `None` removes the annotation.
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

impl DeletionRequestChanges {
    /// Returns true if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    fn set(&mut self, key: &str, value: &str) {
        self.labels.set.insert(key.to_owned(), value.to_owned());
    }
}

/// Records `request` on a pod without a request and begins the operation, so that one write starts a deletion. With
/// `prefer`, the pod also gets the lowest deletion cost, so that its ReplicaSet deletes it first.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::keys::{DELETION_REQUEST, Stage, TO_DELETE};
/// use podward_core::deletion::request::{DeletionMarks, DeletionKind, DeletionIntent, DeletionRequest, intent, record};
/// use podward_core::UnixNanos;
///
/// let mut labels = BTreeMap::new();
/// let pod = DeletionMarks { labels: &labels, request: None, delete_timestamp: None, deletion_cost: None };
/// let changes = record(&pod, DeletionRequest::new(DeletionKind::Delete, "jane", UnixNanos(7)), false);
/// assert!(changes.annotations[DELETION_REQUEST].as_ref().unwrap().contains("jane"));
///
/// let request = DeletionRequest::parse(changes.annotations[DELETION_REQUEST].as_ref().unwrap()).unwrap();
/// changes.labels.apply(&mut labels);
/// assert_eq!(labels[TO_DELETE], "7");
/// assert!(labels.contains_key(&Stage::Operating.key("pod-delete")));
/// let pod = DeletionMarks { labels: &labels, request: Some(&request), delete_timestamp: Some("7"), deletion_cost: None };
/// assert_eq!(intent(&pod), DeletionIntent::Underway);
/// ```
#[must_use]
pub fn record(pod: &DeletionMarks<'_>, mut request: DeletionRequest, prefer: bool) -> DeletionRequestChanges {
    let at = UnixNanos(request.requested_at);
    let mut changes = begin(pod, at);
    if !pod.labels.contains_key(TO_DELETE) {
        changes.set(TO_DELETE, &at.to_string());
    }
    // Without the request, it shows later that the request was withdrawn.
    changes.annotations.insert(DELETE_TIMESTAMP, Some(at.to_string()));
    if prefer && pod.deletion_cost != Some(LOWEST_COST) {
        request.cost_before = Some(pod.deletion_cost.unwrap_or_default().to_owned());
        changes.annotations.insert(POD_DELETION_COST, Some(LOWEST_COST.to_owned()));
    }
    request.was_preparing = pod.labels.contains_key(PREPARING_TO_DELETE) && is_other_announced(pod);
    changes.annotations.insert(DELETION_REQUEST, Some(request.to_text()));
    changes
}

/// Replaces the request on the pod by `request`. Its label and operation stay.
#[must_use]
pub fn replace(request: &DeletionRequest) -> DeletionRequestChanges {
    let annotations = BTreeMap::from([(DELETION_REQUEST, Some(request.to_text()))]);
    DeletionRequestChanges { labels: LabelChanges::default(), annotations }
}

/// Replaces the request on the pod by `joined`, the result of [`DeletionRequest::joined_by`]. An operation that was
/// undone because the request is postponed begins again in the same write.
#[must_use]
pub fn join(pod: &DeletionMarks<'_>, joined: &DeletionRequest, now: UnixNanos) -> DeletionRequestChanges {
    let mut changes = replace(joined);
    if let (DeletionIntent::Postponed(_), None) = (intent(pod), joined.not_before) {
        changes.labels = begin(pod, now).labels;
    }
    changes
}

/// Begins the operation of a request.
#[must_use]
pub fn begin(pod: &DeletionMarks<'_>, now: UnixNanos) -> DeletionRequestChanges {
    let mut changes = DeletionRequestChanges::default();
    let operating = Stage::Operating.key(DELETE_OPERATION);
    if !pod.labels.contains_key(&operating) {
        changes.set(&operating, &now.to_string());
    }
    let type_key = Stage::OperationType.key(DELETE_OPERATION);
    if pod.labels.get(&type_key).map(String::as_str) != Some(DELETE_TYPE) {
        changes.set(&type_key, DELETE_TYPE);
    }
    if !pod.labels.contains_key(PREPARING_TO_DELETE) {
        changes.set(PREPARING_TO_DELETE, &now.to_string());
    }
    changes
}

/// Withdraws the request: undoes the operation and removes everything that belongs to the request. The label
/// [`PREPARING_TO_DELETE`] stays if it was there before the request for another operation that is still active.
///
/// The undo label removes the operation. Podward applies it in the same write ([`crate::advance`] in the mutating
/// webhook, [`crate::plan`] in the controller).
#[must_use]
pub fn cancel(pod: &DeletionMarks<'_>) -> DeletionRequestChanges {
    let mut changes = undo(pod);
    let keeps_label = pod.request.is_some_and(|request| request.was_preparing) && is_other_announced(pod);
    let gone = [TO_DELETE, PREPARING_TO_DELETE]
        .into_iter()
        .filter(|key| pod.labels.contains_key(*key) && !(keeps_label && *key == PREPARING_TO_DELETE));
    changes.labels.remove.extend(gone.map(ToOwned::to_owned));
    if pod.delete_timestamp.is_some() {
        changes.annotations.insert(DELETE_TIMESTAMP, None);
    }
    changes.annotations.insert(TO_DELETE_BY, None);
    // Also when the annotation cannot be read.
    changes.annotations.insert(DELETION_REQUEST, None);
    let before = pod.request.and_then(|request| request.cost_before.as_ref());
    if let Some(before) = before.filter(|_| pod.deletion_cost == Some(LOWEST_COST)) {
        let restored = (!before.is_empty()).then(|| before.clone());
        changes.annotations.insert(POD_DELETION_COST, restored);
    }
    changes
}

/// Undoes the operation and keeps the request, which begins again at `until`.
#[must_use]
pub fn postpone(
    pod: &DeletionMarks<'_>,
    request: &DeletionRequest,
    until: UnixNanos,
) -> DeletionRequestChanges {
    let mut changes = undo(pod);
    let request = DeletionRequest {
        not_before: Some(until.0),
        times_postponed: request.times_postponed.saturating_add(1),
        reserved_at: None,
        ..request.clone()
    };
    changes.annotations.insert(DELETION_REQUEST, Some(request.to_text()));
    changes
}

/// Returns whether an operation besides that of the request is active, or is being announced.
fn is_other_announced(pod: &DeletionMarks<'_>) -> bool {
    let mut operations = Operations::parse(pod.labels);
    operations.by_id.remove(DELETE_OPERATION);
    any_announced(&operations)
}

fn undo(pod: &DeletionMarks<'_>) -> DeletionRequestChanges {
    let mut changes = DeletionRequestChanges::default();
    let has_any = |stages: &[Stage]| {
        Operations::parse(pod.labels).get(DELETE_OPERATION).is_some_and(|operation| operation.has_any(stages))
    };
    if has_any(&Stage::ALL) && !has_any(&[Stage::UndoOperationType]) {
        changes.set(&Stage::UndoOperationType.key(DELETE_OPERATION), DELETE_TYPE);
    }
    changes
}
