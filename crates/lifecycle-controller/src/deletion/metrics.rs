//! Metrics of deletions.

use std::sync::atomic::AtomicU64;

use podward_core::wish::{DeletionKind, Wish};
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

/// Everything that is counted of deletions.
#[derive(Clone, Debug)]
pub(crate) struct DeletionMetrics {
    deletions: Family<DeletionLabels, Counter<u64, AtomicU64>>,
    wait: Family<KindLabels, Histogram, fn() -> Histogram>,
}

impl DeletionMetrics {
    pub(crate) fn new() -> Self {
        DeletionMetrics {
            deletions: Family::default(),
            // From 50 ms to 7 hours.
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 20))),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "deletions",
            "Wishes to delete or evict a pod, by who wished it and what became of it",
            self.deletions.clone(),
        );
        registry.register_with_unit(
            "deletion_wait",
            "Time from the wish to the delete that carried it out",
            Unit::Seconds,
            self.wait.clone(),
        );
    }

    /// Counts what became of a wish.
    pub(crate) fn count(&self, kind: DeletionKind, by_workload: bool, outcome: &'static str) {
        let by = if by_workload { "workload" } else { "other" };
        self.deletions.get_or_create(&DeletionLabels { kind: kind.noun(), by, outcome }).inc();
    }

    /// Counts a wish that was carried out after `seconds`.
    pub(crate) fn carried_out(&self, wish: &Wish, seconds: f64) {
        self.count(wish.kind, wish.by_workload, "carried_out");
        self.wait.get_or_create(&KindLabels { kind: wish.kind.noun() }).observe(seconds);
    }
}
