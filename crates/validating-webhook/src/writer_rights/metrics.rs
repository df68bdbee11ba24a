//! The metric of the rights of writers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The right that a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterRight {
    /// To delete the pod.
    Delete,
    /// To have the pod deleted without draining.
    BreakGlass,
}

/// The answer to a write that needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The writer has the right.
    Allowed,
    /// The writer does not have the right, or the API server did not say. The write is allowed with a warning.
    Warned,
    /// The writer does not have the right.
    Denied,
    /// The API server did not say whether the writer has the right. The writer is to try again.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RightLabels {
    right: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RightsMetrics {
    writes: Family<RightLabels, Counter>,
}

impl RightsMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "privileged_writes",
            "Writes to pods that need more than the right to update pods, by the right and the answer",
            self.writes.clone(),
        );
    }

    pub(super) fn count(&self, right: WriterRight, outcome: WriteOutcome) {
        let right = match right {
            WriterRight::Delete => "delete",
            WriterRight::BreakGlass => "break_glass",
        };
        let outcome = match outcome {
            WriteOutcome::Allowed => "allowed",
            WriteOutcome::Warned => "warned",
            WriteOutcome::Denied => "denied",
            WriteOutcome::Unknown => "unknown",
        };
        self.writes.get_or_create(&RightLabels { right, outcome }).inc();
    }
}
