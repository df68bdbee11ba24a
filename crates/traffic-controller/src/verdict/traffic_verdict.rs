//! Answers and their parts.

use podward_core::UnixNanos;
use podward_core::hooks::{Evidence, EvidenceLevel};

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrafficVerdict {
    /// The request is fulfilled.
    Done(Evidence),
    /// The request is not fulfilled yet.
    Pending {
        /// What the answer waits for.
        reason: String,
        /// The earliest time at which the answer can change without an event. `None` if only an event can change it.
        until: Option<UnixNanos>,
    },
}

impl TrafficVerdict {
    /// Returns the verdict `Done` with evidence of `level`.
    pub(super) fn done(level: EvidenceLevel, detail: impl Into<String>) -> Self {
        TrafficVerdict::Done(Evidence { level, detail: detail.into() })
    }

    /// Returns the verdict `Pending`.
    pub(super) fn pending(reason: impl Into<String>, until: Option<UnixNanos>) -> Self {
        TrafficVerdict::Pending { reason: reason.into(), until }
    }
}

/// One part of an answer: a condition that holds, or that the answer waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VerdictPart {
    /// The condition holds. The values are the level and the text of the evidence.
    Done(EvidenceLevel, String),
    /// The condition does not hold yet. The values are the reason and the earliest time at which this can change
    /// without an event.
    Wait(String, Option<UnixNanos>),
}
