//! Where the crate reports what happens.

use podward_kube_util::watched::WatchMetrics;
use podward_traces::OperationTraces;

use crate::metrics::HookMetrics;

/// The metrics and traces to which hooks are reported.
#[derive(Clone, Debug, Default)]
pub struct HookObservers {
    /// The metrics of hooks.
    pub metrics: HookMetrics,
    /// The metrics of watches.
    pub watches: WatchMetrics,
    /// The traces of operations.
    pub traces: OperationTraces,
}
