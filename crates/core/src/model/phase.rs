//! The phase of an operation, for events, metrics and conditions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::keys::Stage;
use super::operations::Operation;

/// The phase of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OperationPhase {
    /// Only one of `operating` and `operation-type` is present.
    Incomplete,
    /// The operation is announced, and Podward checks whether it may start.
    PreChecking,
    /// The operation may start, and the pod is being taken out of service.
    Preparing,
    /// The operator has its permission and works.
    Operating,
    /// The operator has finished; other operators on the same pod have not.
    WaitingForOthers,
    /// All operators have finished, and Podward checks the results.
    PostChecking,
    /// The result is accepted, and the pod is being put back into service.
    Completing,
}

impl OperationPhase {
    /// Returns the phase of `operation`, or `None` when its labels are not active in the protocol.
    #[must_use]
    pub fn of(operation: &Operation<'_>) -> Option<OperationPhase> {
        let has = |stage| operation.has(stage);
        Some(match () {
            () if operation.is_incomplete() => OperationPhase::Incomplete,
            () if has(Stage::Completing) => OperationPhase::Completing,
            () if has(Stage::Operated) => OperationPhase::PostChecking,
            () if has(Stage::Operate) && has(Stage::Operating) => OperationPhase::Operating,
            () if has(Stage::Operate) => OperationPhase::WaitingForOthers,
            () if has(Stage::PreChecked) => OperationPhase::Preparing,
            // Also with `preparing`: an operation that is begun again is checked again while the pod stays out of
            // service.
            () if has(Stage::Operating) => OperationPhase::PreChecking,
            () if has(Stage::Preparing) => OperationPhase::Preparing,
            () => return None,
        })
    }

    /// Returns the name in CamelCase, for event reasons and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            OperationPhase::Incomplete => "Incomplete",
            OperationPhase::PreChecking => "PreChecking",
            OperationPhase::Preparing => "Preparing",
            OperationPhase::Operating => "Operating",
            OperationPhase::WaitingForOthers => "WaitingForOthers",
            OperationPhase::PostChecking => "PostChecking",
            OperationPhase::Completing => "Completing",
        }
    }
}

impl fmt::Display for OperationPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
