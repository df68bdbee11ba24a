//! The state of one operation in one version of a pod.

use std::collections::BTreeMap;

use podward_core::keys::Stage;
use podward_core::{OperationPhase, Operations};

/// The state of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperationState {
    pub(super) operation_type: String,
    pub(super) phase: OperationPhase,
    /// When the operation entered the phase, in nanoseconds since the Unix epoch, by the value of the label. `None` if
    /// the phase has no label or its value is not a number.
    pub(super) since: Option<i64>,
}

impl OperationState {
    /// Returns the state of each of `operations`, by id.
    pub(super) fn of_all(
        labels: &BTreeMap<String, String>,
        operations: &Operations<'_>,
    ) -> BTreeMap<String, Self> {
        let states = operations.iter().filter_map(|(id, operation)| {
            let phase = OperationPhase::of(operation)?;
            let operation_type = operations.type_name(id);
            Some((id.to_owned(), OperationState { operation_type, phase, since: since(labels, id, phase) }))
        });
        states.collect()
    }

    #[cfg(test)]
    pub(super) fn at(operation_type: &str, phase: OperationPhase) -> Self {
        OperationState { operation_type: operation_type.to_owned(), phase, since: None }
    }
}

/// Returns the start of `phase` by the value of the label that started it.
fn since(labels: &BTreeMap<String, String>, id: &str, phase: OperationPhase) -> Option<i64> {
    let stage = match phase {
        OperationPhase::PreChecking => Stage::PreCheck,
        OperationPhase::Preparing => Stage::Preparing,
        OperationPhase::Operating => Stage::Operate,
        OperationPhase::PostChecking => Stage::Operated,
        OperationPhase::Completing => Stage::Completing,
        _ => return None,
    };
    labels.get(&stage.key(id))?.parse().ok()
}
