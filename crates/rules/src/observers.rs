//! Where the crate reports what happens.

use podward_kube_util::Events;
use podward_kube_util::watched::WatchMetrics;
use podward_traces::OperationTraces;

use super::metrics::RuleMetrics;

/// The metrics, events and traces to which rules are reported.
pub struct RuleObservers {
    /// The metrics of rules.
    pub metrics: RuleMetrics,
    /// The metrics of watches.
    pub watches: WatchMetrics,
    /// The queue of events.
    pub events: Events,
    /// The traces of operations.
    pub traces: OperationTraces,
}
