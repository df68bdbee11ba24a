//! The state of the deletion of a pod, read from its labels and annotations.

use crate::model::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;

use super::carried::DeletionMarks;

/// The next step of a pod's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionIntent {
    /// There is no request.
    None,
    /// Only the label [`TO_DELETE`] is set: the request must be recorded and the operation begun.
    Begin,
    /// The operation is active.
    Underway,
    /// The request is postponed until this time.
    Postponed(UnixNanos),
    /// The request was withdrawn, at least in part. The rest must be removed ([`cancel`](super::cancel)).
    Cancelled(CancelledBy),
}

/// The way in which a request was withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledBy {
    /// The label [`TO_DELETE`] was removed.
    Label,
    /// The annotation was removed.
    Annotation,
    /// The operation was undone.
    Operation,
}

impl CancelledBy {
    /// Returns the end of a sentence that begins with "cancelled:".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            CancelledBy::Label => "the label collaset.kusionstack.io/to-delete was removed",
            CancelledBy::Annotation => "the annotation podward.io/deletion-request was removed",
            CancelledBy::Operation => "the operation pod-delete was undone",
        }
    }
}

/// Reads the state. Every combination of labels and annotations has a meaning, and its next step leads to a stable
/// state.
///
/// An operation `pod-delete` without a request belongs to another operator, which deletes the pod itself.
#[must_use]
pub fn intent(pod: &DeletionMarks<'_>) -> DeletionIntent {
    let operations = Operations::parse(pod.labels);
    let operation = operations.get(DELETE_OPERATION);
    let is_begun = operation.is_some_and(|operation| operation.has(Stage::Operating));
    let is_undone = operation.is_some_and(|operation| operation.has(Stage::UndoOperationType));
    match (pod.request, pod.labels.get(TO_DELETE)) {
        (Some(_), None) => DeletionIntent::Cancelled(CancelledBy::Label),
        (Some(_), Some(_)) if is_undone => DeletionIntent::Cancelled(CancelledBy::Operation),
        (Some(request), Some(_)) => match (is_begun, request.not_before) {
            (true, _) => DeletionIntent::Underway,
            (false, Some(until)) => DeletionIntent::Postponed(UnixNanos(until)),
            (false, None) => DeletionIntent::Cancelled(CancelledBy::Operation),
        },
        // The time was written with a request that is gone now. Everybody who may write the pod may change the label and
        // the time, so their values do not count.
        (None, _) if pod.delete_timestamp.is_some() => DeletionIntent::Cancelled(CancelledBy::Annotation),
        (None, Some(_)) if is_undone => DeletionIntent::Cancelled(CancelledBy::Operation),
        (None, Some(_)) => DeletionIntent::Begin,
        (None, None) => DeletionIntent::None,
    }
}
