//! What the marks on a pod say about its deletion, whoever wrote them.

use crate::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use crate::operations::Operations;
use crate::time::UnixNanos;

use super::Carried;

/// What is to be done about a pod's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Nobody wishes it.
    None,
    /// Somebody has set the label [`TO_DELETE`] and nothing else: a wish is to be recorded, and the operation begun.
    Begin,
    /// The operation goes on.
    Underway,
    /// The wish was put off until this time.
    PutOff(UnixNanos),
    /// Somebody has taken the wish back, in whole or in part; the rest is to follow ([`cancel`](super::cancel)).
    Cancelled(CancelledBy),
}

/// How a wish was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledBy {
    /// The label [`TO_DELETE`] was removed.
    Label,
    /// The annotation with the wish was removed.
    Annotation,
    /// The operation was undone.
    Operation,
}

impl CancelledBy {
    /// The end of a sentence that begins with "cancelled:".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            CancelledBy::Label => "the label collaset.kusionstack.io/to-delete was removed",
            CancelledBy::Annotation => "the annotation podward.io/deletion-wish was removed",
            CancelledBy::Operation => "the operation pod-delete was undone",
        }
    }
}

/// Reads the marks. Total: any combination has a meaning, and what follows from it leads to one that is at rest.
///
/// An operation `pod-delete` without a wish and without marks of one is somebody else's, who deletes the pod himself.
#[must_use]
pub fn intent(pod: &Carried<'_>) -> Intent {
    let operations = Operations::parse(pod.labels);
    let operation = operations.get(DELETE_OPERATION);
    let is_begun = operation.is_some_and(|operation| operation.has(Stage::Operating));
    let is_undone = operation.is_some_and(|operation| operation.has(Stage::UndoOperationType));
    let label = pod.labels.get(TO_DELETE).map(String::as_str);
    match (pod.wish, label) {
        (Some(_), None) => Intent::Cancelled(CancelledBy::Label),
        (Some(_), Some(_)) if is_undone => Intent::Cancelled(CancelledBy::Operation),
        (Some(wish), Some(_)) => match (is_begun, wish.not_before) {
            (true, _) => Intent::Underway,
            (false, Some(until)) => Intent::PutOff(UnixNanos(until)),
            (false, None) => Intent::Cancelled(CancelledBy::Operation),
        },
        // Label and annotation with the same time were written together with a wish, which is not there any more.
        (None, Some(label)) if pod.delete_timestamp == Some(label) => {
            Intent::Cancelled(CancelledBy::Annotation)
        }
        (None, Some(_)) if is_undone => Intent::Cancelled(CancelledBy::Operation),
        (None, Some(_)) => Intent::Begin,
        (None, None) if is_begun && pod.delete_timestamp.is_some() => {
            Intent::Cancelled(CancelledBy::Annotation)
        }
        (None, None) => Intent::None,
    }
}
