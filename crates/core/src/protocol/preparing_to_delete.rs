//! The label [`PREPARING_TO_DELETE`], with which an operator says that its operation ends with the deletion of the pod.
//!
//! The label does not name its operation. It must not outlive it: with the permission of a later operation, it would allow
//! a delete that nobody has announced. The clients of KusionStack add the label when they begin the operation, unless it is
//! there, and nothing reads it after the operation.

use std::collections::BTreeMap;

use crate::model::keys::{PREPARING_TO_DELETE, Stage, TO_DELETE};
use crate::model::operations::Operations;

/// Returns whether any operation is active, or is being announced.
pub(crate) fn any_announced(operations: &Operations<'_>) -> bool {
    operations.iter().any(|(_, operation)| operation.is_live() || operation.has(Stage::Operating))
}

/// Returns whether `labels` have the label although no operation is left. `left` are the operations that stay. A
/// deletion request keeps it: it removes the label itself, and its operation can begin again.
pub(crate) fn is_left_over(labels: &BTreeMap<String, String>, left: &Operations<'_>) -> bool {
    labels.contains_key(PREPARING_TO_DELETE) && !labels.contains_key(TO_DELETE) && !any_announced(left)
}
