//! The state that the tasks of this crate share.

use std::sync::Arc;

use kube::Client;
use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use podward_kube_util::{CachedPod, PodKey, WorkQueue};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::metrics::RuleMetrics;
use super::state::RuleCache;
use super::worker::{OutsidePods, OwnerReplicas, ReadBarrier, RuleWebhooks, TerminatingRules};

/// The state that the tasks of this crate share.
pub(crate) struct RuleContext {
    pub(crate) client: Client,
    /// The name of this controller in [`Grants::holder`](podward_core::rules::Grants::holder). It is another one each
    /// time that the process starts to lead.
    pub(crate) holder: String,
    pub(crate) pods: Store<CachedPod>,
    pub(crate) cache: Arc<Mutex<RuleCache>>,
    pub(crate) barrier: ReadBarrier,
    pub(crate) owners: OwnerReplicas,
    pub(crate) outside_pods: OutsidePods,
    pub(crate) webhooks: RuleWebhooks,
    pub(crate) terminating: TerminatingRules,
    /// The pods to reconcile again.
    pub(crate) to_reconcile: Arc<WorkQueue<PodKey>>,
    /// Counts the events of pods.
    pub(crate) pod_events: tokio::sync::watch::Sender<u64>,
    /// Counts the events of PodTransitionRules.
    pub(crate) rule_events: tokio::sync::watch::Sender<u64>,
    pub(crate) metrics: RuleMetrics,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl RuleContext {
    /// Runs `work` until it ends or this process stops leading.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }
}
