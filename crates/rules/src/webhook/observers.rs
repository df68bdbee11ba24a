//! The interfaces between the drivers and the rest of the crate.

use std::sync::Arc;

use futures::future::BoxFuture;
use podward_traces::OperationTraces;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::metrics::WebhookMetrics;
use super::rule_id::WebhookRuleId;

/// Reads the pods whose fields are parameters of a webhook.
pub(crate) trait PodReader: Send + Sync + 'static {
    /// Returns the JSON of a pod; `None` if there is no pod with this name and UID. Called only for rules with
    /// parameters that are read from the pod, for a few pods at the same time.
    ///
    /// # Errors
    /// When the pod can't be read. Then the webhook is not called, and the call is retried.
    fn json<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, String>>;
}

/// The pods to read, and the permits for it, which all calls share.
pub(super) struct PodReads {
    pub(super) reader: Arc<dyn PodReader>,
    pub(super) permits: Semaphore,
}

/// Receives a rule whose webhook fails, the error, and true if pods pass in spite of it.
type OnFailure = dyn Fn(&WebhookRuleId, &str, bool) + Send + Sync;

/// Everything that is informed of calls, from any thread. Clones share it.
#[derive(Clone)]
pub(crate) struct WebhookObservers {
    /// Called when the verdicts of a rule's webhook have changed: consult it again.
    pub(crate) changed: Arc<dyn Fn(&WebhookRuleId) + Send + Sync>,
    /// Called at the first failure of a webhook, and then with growing intervals.
    pub(crate) failing: Arc<OnFailure>,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) traces: OperationTraces,
}
