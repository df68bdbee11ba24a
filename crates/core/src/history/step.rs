//! What a write does to an operation.

use crate::model::keys::Stage;
use crate::model::operations::Operations;
use crate::trace::phase_of;

/// What a write does to an operation, as far as the history records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The operation begins.
    Begins,
    /// The operator begins the operation again before it was over.
    BeginsAgain,
    /// The operator has finished. The operation goes on until the pod is back in service.
    Finishes,
    /// The operation is over.
    Ends,
}

impl Step {
    pub(super) fn of(from: &Operations<'_>, to: &Operations<'_>, id: &str) -> Option<Step> {
        let is_operating = |operations: &Operations<'_>| {
            operations.get(id).is_some_and(|operation| operation.has(Stage::Operating))
        };
        match (phase_of(from, id), phase_of(to, id)) {
            (None, None) => None,
            (None, Some(_)) => Some(Step::Begins),
            (Some(_), None) => Some(Step::Ends),
            (Some(_), Some(_)) => match (is_operating(from), is_operating(to)) {
                (true, false) => Some(Step::Finishes),
                (false, true) => Some(Step::BeginsAgain),
                _ => None,
            },
        }
    }
}
