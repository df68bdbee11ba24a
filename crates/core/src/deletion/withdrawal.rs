//! How the deletion of a pod is cancelled by somebody else than Podward.

use crate::model::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use crate::model::operations::Operations;
use crate::model::view::PodView;

/// How the deletion of a pod is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It cannot be cancelled: it has its permission, or the pod is terminating.
    TooLate,
    /// The label [`TO_DELETE`] is removed. The leader then cancels the operation, and restores the disruption that the
    /// request has used of a budget.
    RemoveLabel,
    /// There is no deletion request. An operation with the id [`DELETE_OPERATION`] is that of another operator, and is
    /// undone like any other.
    NoRequest,
}

impl Withdrawal {
    /// Returns how the deletion of `pod`, which has `operations`, is cancelled.
    #[must_use]
    pub fn of(pod: &PodView<'_>, operations: &Operations<'_>) -> Self {
        let is_granted =
            operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(Stage::Operate));
        match pod.labels.contains_key(TO_DELETE) {
            _ if pod.terminating || is_granted => Withdrawal::TooLate,
            true => Withdrawal::RemoveLabel,
            false => Withdrawal::NoRequest,
        }
    }
}
