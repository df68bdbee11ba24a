//! What the work for each binding needs.

use std::sync::Arc;

use kube::Client;
use podward_kube_util::Events;
use podward_registries::Dialer;
use podward_runtime::grpc_client::{BearerToken, Replicas};
use podward_runtime::telemetry::traces::Spans;

use crate::index::Index;
use crate::members::Tenure;
use crate::metrics::BridgeMetrics;
use crate::sync::Limiters;

/// What the work for each binding needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) index: Arc<Index>,
    pub(crate) metrics: Arc<BridgeMetrics>,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) limiters: Arc<Limiters>,
    /// The id of the Kubernetes cluster in the marks of instances.
    pub(crate) cluster: Arc<str>,
    /// The namespace of the Secrets of ClusterRegistries.
    pub(crate) namespace: Arc<str>,
    /// The name of this replica.
    pub(crate) replica: Arc<str>,
    pub(crate) controller: Arc<Replicas>,
    pub(crate) token: BearerToken,
    pub(crate) spans: Spans,
    pub(crate) events: Events,
}
