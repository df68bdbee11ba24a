//! Metrics of deletions.

use std::sync::atomic::AtomicU64;

use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeletionLabels {
    kind: &'static str,
    by: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// Counters and durations of deletion requests.
#[derive(Clone, Debug)]
pub struct DeletionMetrics {
    deletions: Family<DeletionLabels, Counter<u64, AtomicU64>>,
    wait: Family<KindLabels, Histogram, fn() -> Histogram>,
}

impl Default for DeletionMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl DeletionMetrics {
    /// Returns the metrics with all values zero.
    #[must_use]
    pub fn new() -> Self {
        DeletionMetrics {
            deletions: Family::default(),
            // From 50 ms to 7 hours.
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 20))),
        }
    }

    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "deletions",
            "Requests to delete or evict a pod, by requester and outcome",
            self.deletions.clone(),
        );
        registry.register_with_unit(
            "deletion_wait",
            "Time from the deletion request to the delete",
            Unit::Seconds,
            self.wait.clone(),
        );
    }

    /// Counts the outcome of a deletion request.
    pub fn count(&self, kind: DeletionKind, by_workload: bool, outcome: &'static str) {
        let by = if by_workload { "workload" } else { "other" };
        self.deletions.get_or_create(&DeletionLabels { kind: kind.noun(), by, outcome }).inc();
    }

    /// Counts a deletion request that was executed after `seconds`.
    pub fn executed(&self, request: &DeletionRequest, seconds: f64) {
        self.count(request.kind, request.by_workload, "carried_out");
        self.wait.get_or_create(&KindLabels { kind: request.kind.noun() }).observe(seconds);
    }
}
