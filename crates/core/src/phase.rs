//! The phase that an operation is in, for people: events, metrics, conditions.

use std::fmt;

use crate::keys::Stage;
use crate::operations::Operation;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Only one of `operating` and `operation-type` is there.
    HalfAnnounced,
    /// Announced; Podward checks whether it may start.
    PreChecking,
    /// Allowed to start; the pod is being taken out of service.
    Preparing,
    /// The operator has the permission and works.
    Operating,
    /// The operator is done; other operators on the same pod are not.
    WaitingForOthers,
    /// All operators are done; Podward checks the result.
    PostChecking,
    /// The result is good; the pod is being put back into service.
    Completing,
}

impl Phase {
    /// The phase of `operation`; `None` where its labels have no part in the protocol.
    #[must_use]
    pub fn of(operation: &Operation<'_>) -> Option<Phase> {
        let has = |stage| operation.has(stage);
        Some(match () {
            () if operation.is_half_announced() => Phase::HalfAnnounced,
            () if has(Stage::Completing) => Phase::Completing,
            () if has(Stage::Operated) => Phase::PostChecking,
            () if has(Stage::Operate) && has(Stage::Operating) => Phase::Operating,
            () if has(Stage::Operate) => Phase::WaitingForOthers,
            () if has(Stage::PreChecked) => Phase::Preparing,
            // Also with `preparing`: begun again, it is checked anew while the pod stays out of service.
            () if has(Stage::Operating) => Phase::PreChecking,
            () if has(Stage::Preparing) => Phase::Preparing,
            () => return None,
        })
    }

    /// The name in CamelCase, as the reason of an event and the label of a metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::HalfAnnounced => "HalfAnnounced",
            Phase::PreChecking => "PreChecking",
            Phase::Preparing => "Preparing",
            Phase::Operating => "Operating",
            Phase::WaitingForOthers => "WaitingForOthers",
            Phase::PostChecking => "PostChecking",
            Phase::Completing => "Completing",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
