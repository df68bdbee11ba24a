//! The metrics of the process.

mod shown;

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use shown::{Severity, ShownBindings};

use crate::model::BindingKey;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BindingLabels {
    /// `namespace/name`. Prometheus sets the label `namespace` to that of the scraped pod.
    binding: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    binding: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    phase: &'static str,
    outcome: &'static str,
    evidence: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// All metrics of the service-discovery-bridge.
#[derive(Debug)]
pub(crate) struct BridgeMetrics {
    pub(crate) kept: Gauge<i64, AtomicI64>,
    pub(crate) member: Gauge<i64, AtomicI64>,
    instances: Family<StateLabels, Gauge<i64, AtomicI64>>,
    unreachable: Family<BindingLabels, Gauge<i64, AtomicI64>>,
    rejected: Family<BindingLabels, Gauge<i64, AtomicI64>>,
    answers: Family<AnswerLabels, Counter<u64, AtomicU64>>,
    changes: Family<ResultLabels, Counter<u64, AtomicU64>>,
    renewals: Family<ResultLabels, Counter<u64, AtomicU64>>,
    comparisons: Counter,
    comparison_seconds: Histogram,
    shown: Mutex<ShownBindings>,
}

impl Default for BridgeMetrics {
    fn default() -> Self {
        Self {
            kept: Gauge::default(),
            member: Gauge::default(),
            instances: Family::default(),
            unreachable: Family::default(),
            rejected: Family::default(),
            answers: Family::default(),
            changes: Family::default(),
            renewals: Family::default(),
            comparisons: Counter::default(),
            // From 1 ms to 33 s.
            comparison_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            shown: Mutex::default(),
        }
    }
}

/// The numbers of a binding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BindingNumbers {
    pub(crate) wanted: usize,
    pub(crate) present: usize,
    pub(crate) drifted: usize,
    pub(crate) held: usize,
    pub(crate) unreachable: bool,
    pub(crate) rejected: bool,
}

impl BindingNumbers {
    fn severity(self) -> Severity {
        if self.unreachable || self.drifted > 0 || self.held > 0 {
            Severity::Registry
        } else if self.rejected {
            Severity::Rejected
        } else {
            Severity::None
        }
    }
}

const STATES: [&str; 4] = ["wanted", "present", "drifted", "held"];

impl BridgeMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("discovery");
        // Without a series a metric is not exposed.
        ["shown", "waits", "failed"].into_iter().for_each(|result| self.changed(result, 0));
        ["sent", "failed"].into_iter().for_each(|result| self.renewed(result, 0));
        registry.register(
            "bindings_kept",
            "Number of DiscoveryBindings that this replica is responsible for",
            self.kept.clone(),
        );
        registry.register(
            "member",
            "1 while this replica holds one of the Leases of the replicas. Without one, it is responsible for no bindings",
            self.member.clone(),
        );
        registry.register(
            "instances",
            "Number of instances of a DiscoveryBinding: wanted, present as wanted, drifted (changed by others), held \
             (removals that the removal limit holds)",
            self.instances.clone(),
        );
        registry.register(
            "registry_unreachable",
            "1 while an address of the registry of a DiscoveryBinding does not answer",
            self.unreachable.clone(),
        );
        registry.register(
            "binding_rejected",
            "1 while a DiscoveryBinding or its connection is invalid",
            self.rejected.clone(),
        );
        registry.register(
            "answers",
            "Answers to calls of the lifecycle-controller, by phase, outcome and evidence",
            self.answers.clone(),
        );
        registry.register(
            "changes",
            "Changes of instances, by result: shown, waits, failed",
            self.changes.clone(),
        );
        registry.register(
            "renewals",
            "Heartbeats of instances, by result: sent, failed",
            self.renewals.clone(),
        );
        registry.register(
            "comparisons",
            "Full comparisons of a registry with the pods",
            self.comparisons.clone(),
        );
        registry.register(
            "comparison_seconds",
            "Time of a full comparison of a registry with the pods",
            self.comparison_seconds.clone(),
        );
    }

    /// Sets the numbers of a binding, unless too many others are shown that have problems as severe.
    pub(crate) fn set(&self, key: &BindingKey, numbers: BindingNumbers) {
        let mut shown = self.shown.lock();
        let (is_shown, hidden) = shown.put(key, numbers.severity());
        if let Some(hidden) = hidden {
            self.remove(&hidden);
        }
        if !is_shown {
            return;
        }
        let BindingNumbers { wanted, present, drifted, held, unreachable, rejected } = numbers;
        for (state, number) in STATES.into_iter().zip([wanted, present, drifted, held]) {
            self.instances
                .get_or_create(&state_labels(key, state))
                .set(i64::try_from(number).unwrap_or(i64::MAX));
        }
        self.unreachable.get_or_create(&labels(key)).set(i64::from(unreachable));
        self.rejected.get_or_create(&labels(key)).set(i64::from(rejected));
    }

    /// Removes the numbers of a binding that this replica is not responsible for any more.
    pub(crate) fn forget(&self, key: &BindingKey) {
        let mut shown = self.shown.lock();
        shown.remove(key);
        self.remove(key);
    }

    fn remove(&self, key: &BindingKey) {
        for state in STATES {
            self.instances.remove(&state_labels(key, state));
        }
        self.unreachable.remove(&labels(key));
        self.rejected.remove(&labels(key));
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, phase: &'static str, outcome: &'static str, evidence: &'static str) {
        self.answers.get_or_create(&AnswerLabels { phase, outcome, evidence }).inc();
    }

    /// Counts changes.
    pub(crate) fn changed(&self, result: &'static str, count: u64) {
        self.changes.get_or_create(&ResultLabels { result }).inc_by(count);
    }

    /// Counts a full comparison.
    pub(crate) fn compared(&self, took: Duration) {
        self.comparisons.inc();
        self.comparison_seconds.observe(took.as_secs_f64());
    }

    /// Counts heartbeats.
    pub(crate) fn renewed(&self, result: &'static str, count: u64) {
        self.renewals.get_or_create(&ResultLabels { result }).inc_by(count);
    }
}

fn labels(key: &BindingKey) -> BindingLabels {
    BindingLabels { binding: key.to_string() }
}

fn state_labels(key: &BindingKey, state: &'static str) -> StateLabels {
    StateLabels { binding: key.to_string(), state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shown::MAX_BINDINGS;

    #[test]
    fn bindings_with_problems_are_shown_first() {
        let metrics = BridgeMetrics::default();
        let key = |number: usize| BindingKey { namespace: "shop".to_owned(), name: format!("b{number}") };
        let set = |number: usize, numbers: BindingNumbers| metrics.set(&key(number), numbers);
        let shows = |number: usize| {
            let key = key(number);
            metrics.rejected.get(&labels(&key)).is_some()
                && metrics.instances.get(&state_labels(&key, "held")).is_some()
        };
        let count = |last: usize| (0..=last).filter(|number| shows(*number)).count();
        let rejected = || BindingNumbers { rejected: true, ..BindingNumbers::default() };
        let unreachable = || BindingNumbers { unreachable: true, ..BindingNumbers::default() };
        (0..=MAX_BINDINGS).for_each(|number| set(number, BindingNumbers::default()));
        assert!(!shows(MAX_BINDINGS));
        set(MAX_BINDINGS, rejected());
        assert!(shows(MAX_BINDINGS));
        assert_eq!(count(MAX_BINDINGS), MAX_BINDINGS);
        (0..MAX_BINDINGS).for_each(|number| set(number, rejected()));
        assert_eq!(count(MAX_BINDINGS), MAX_BINDINGS);
        let new = MAX_BINDINGS + 1;
        set(new, rejected());
        assert!(!shows(new), "all have the same problem");
        set(new, unreachable());
        assert!(shows(new));
        assert_eq!(count(new), MAX_BINDINGS);

        metrics.forget(&key(new));
        assert!(!shows(new));
        set(new + 1, BindingNumbers::default());
        assert!(shows(new + 1));
    }
}
