//! The metric of requests without a secret.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counts requests without an accepted secret in their path. Clones share the value.
#[derive(Clone, Debug, Default)]
pub struct SecretPathMetrics {
    pub(super) refused: Counter,
}

impl SecretPathMetrics {
    /// Adds the metric to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.sub_registry_with_prefix("admission").register(
            "unknown_path_requests",
            "POST requests that were answered 404, because their path had no accepted secret",
            self.refused.clone(),
        );
    }
}
