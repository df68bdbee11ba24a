//! Figures of rules.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How the write of a status ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Ended {
    Done,
    /// Somebody else was faster.
    Lost,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNamespace {
    namespace: String,
}

/// Clones share the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleMetrics {
    writes: Family<Outcome, Counter<u64, AtomicU64>>,
    grants: Counter,
    waiting: Family<OfNamespace, Gauge<i64, AtomicI64>>,
}

impl RuleMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rule");
        registry.register(
            "status_writes",
            "Writes of the status of PodTransitionRules, by outcome",
            self.writes.clone(),
        );
        registry.register(
            "grants",
            "Times that a pod was given room in the budgets of a rule object",
            self.grants.clone(),
        );
        registry.register("waiting_pods", "Pods that wait for a rule, by namespace", self.waiting.clone());
    }

    pub(super) fn wrote(&self, outcome: Ended) {
        self.writes.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn granted(&self, grants: usize) {
        self.grants.inc_by(u64::try_from(grants).unwrap_or_default());
    }

    pub(super) fn waits(&self, namespace: &str, pods: usize) {
        let labels = OfNamespace { namespace: namespace.to_owned() };
        self.waiting.get_or_create(&labels).set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// The namespace has no rule object any more.
    pub(super) fn waits_no_more(&self, namespace: &str) {
        self.waiting.remove(&OfNamespace { namespace: namespace.to_owned() });
    }

    /// A replica that doesn't lead knows nothing of pods that wait.
    pub(crate) fn forget(&self) {
        self.waiting.clear();
    }
}
