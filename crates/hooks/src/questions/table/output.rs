//! The receivers of the question table's changes.

use std::sync::Arc;

use kube::runtime::reflector::ObjectRef;
use podward_kube_util::{CachedPod, WorkQueue};

use crate::metrics::HookMetrics;

/// The queues and metrics that the table writes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableOutput {
    /// The pods to reconcile.
    pub(crate) pods: Arc<WorkQueue<ObjectRef<CachedPod>>>,
    /// The hooks whose status may have changed.
    pub(crate) hooks: Arc<WorkQueue<String>>,
    pub(crate) metrics: HookMetrics,
}
