//! The controller's metrics.

use std::sync::atomic::{AtomicI64, AtomicU64};

use podward_core::OperationPhase;
use podward_core::keys::DELETE_TYPE;
use podward_core::trace::TraceId;
use podward_kube_util::watched::WatchMetrics;
use podward_kube_util::{BoundedNames, EventMetrics};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::exponential_buckets;
use prometheus_client::registry::{Registry, Unit};

use podward_deletion::DeletionMetrics;
use podward_hooks::HookMetrics;
use podward_rules::RuleMetrics;

use super::oldest_operations::OldestOperations;
use super::overdue_questions::OverdueQuestions;

/// What a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum WriteKind {
    /// The gate, with any labels and conditions.
    Gate,
    /// Labels, annotations or finalizers, without the gate.
    Metadata,
    /// Only the lifecycle condition.
    Condition,
    /// An event.
    Event,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: WriteKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation_type: String,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    operation_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

/// The label of an exemplar, by the convention of Prometheus and Grafana.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TraceLabels {
    trace_id: String,
}

type PhaseHistogram = HistogramWithExemplars<TraceLabels>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    category: &'static str,
}

/// Limits the label `operation_type`, because operators choose the types. Further types are counted as `other`.
const MAX_TYPES: usize = 50;
/// The types of Podward and of common operators, which always have series of their own.
const OWN_TYPES: [&str; 3] = [DELETE_TYPE, "update", "restart"];

/// The metrics of the controller.
#[derive(Debug)]
pub(crate) struct Metrics {
    operations: Family<OperationLabels, Gauge<i64, AtomicI64>>,
    oldest: OldestOperations,
    phase_seconds: Family<PhaseLabels, PhaseHistogram, fn() -> PhaseHistogram>,
    writes: Family<WriteLabels, Counter<u64, AtomicU64>>,
    errors: Family<ErrorLabels, Counter<u64, AtomicU64>>,
    pub(crate) events: EventMetrics,
    busy_overruns: Family<TypeLabels, Counter<u64, AtomicU64>>,
    results_refused: Family<TypeLabels, Counter<u64, AtomicU64>>,
    pub(crate) busy_waiting: Gauge<i64, AtomicI64>,
    pub(crate) queue_depth: Gauge<i64, AtomicI64>,
    pub(crate) leader: Gauge<i64, AtomicI64>,
    pub(crate) callbacks: HookMetrics,
    pub(crate) deletions: DeletionMetrics,
    pub(crate) rules: RuleMetrics,
    pub(crate) watches: WatchMetrics,
    pub(super) overdue: OverdueQuestions,
    types: BoundedNames,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let writes: Family<WriteLabels, Counter<u64, AtomicU64>> = Family::default();
        let sent = writes.get_or_create(&WriteLabels { kind: WriteKind::Event }).clone();
        let callbacks = HookMetrics::default();
        Metrics {
            operations: Family::default(),
            oldest: OldestOperations::default(),
            phase_seconds: Family::new_with_constructor(|| {
                HistogramWithExemplars::new(exponential_buckets(0.005, 2.0, 18))
            }),
            writes,
            errors: Family::default(),
            events: EventMetrics { sent, ..EventMetrics::default() },
            busy_overruns: Family::default(),
            results_refused: Family::default(),
            busy_waiting: Gauge::default(),
            queue_depth: Gauge::default(),
            leader: Gauge::default(),
            overdue: OverdueQuestions::new(callbacks.clone()),
            callbacks,
            deletions: DeletionMetrics::new(),
            rules: RuleMetrics::default(),
            watches: WatchMetrics::default(),
            types: BoundedNames::with(&OWN_TYPES, MAX_TYPES),
        }
    }

    /// Removes what only a leader knows. The next leader counts other types.
    pub(crate) fn forget_operations(&self) {
        self.callbacks.forget_all();
        self.operations.clear();
        self.oldest.clear();
        self.overdue.clear();
        self.busy_overruns.clear();
        self.results_refused.clear();
        self.types.clear();
        self.busy_waiting.set(0);
        self.rules.forget();
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.callbacks.register(registry);
        self.deletions.register(registry);
        self.rules.register(registry);
        self.watches.register(registry);
        registry.register(
            "operations",
            "Current operations on pods, by type and phase",
            self.operations.clone(),
        );
        registry.register_collector(Box::new(self.oldest.clone()));
        registry.register_with_unit(
            "operation_phase",
            "Time that operations spent in a phase",
            Unit::Seconds,
            self.phase_seconds.clone(),
        );
        registry.register("writes", "Writes to the API server, by what they change", self.writes.clone());
        registry.register("errors", "Failed reconciliations, by category", self.errors.clone());
        self.events.register(registry);
        registry.register(
            "queue_depth",
            "Pods that wait for their turn to leave service, or for a free write slot",
            self.queue_depth.clone(),
        );
        registry.register_collector(Box::new(self.overdue.clone()));
        registry.register(
            "busy_overruns",
            "Operations that proceeded although their pod was busy, because the maximum time had passed",
            self.busy_overruns.clone(),
        );
        registry.register(
            "results_refused",
            "Operations whose result was refused, with Rollback",
            self.results_refused.clone(),
        );
        registry.register(
            "busy_waiting_pods",
            "Pods that keep an operation waiting because they are busy",
            self.busy_waiting.clone(),
        );
        registry.register("leader", "1 while this replica leads", self.leader.clone());
    }

    pub(crate) fn wrote(&self, kind: WriteKind) {
        self.writes.get_or_create(&WriteLabels { kind }).inc();
    }

    pub(crate) fn failed(&self, category: &'static str) {
        self.errors.get_or_create(&ErrorLabels { category }).inc();
    }

    /// Counts an operation that entered `phase` at `since`, in nanoseconds since the Unix epoch.
    pub(crate) fn entered(&self, operation_type: &str, phase: OperationPhase, since: Option<i64>) {
        self.operations.get_or_create(&self.labels(operation_type, phase)).inc();
        self.oldest.entered(phase, since);
    }

    /// Counts an operation that was in `phase` since `since` and left it at `until`. `until` is `None` if it is
    /// unknown. `trace` is the trace of the operation, if it is exported.
    pub(crate) fn left(
        &self,
        operation_type: &str,
        phase: OperationPhase,
        since: Option<i64>,
        until: Option<i64>,
        trace: Option<TraceId>,
    ) {
        self.operations.get_or_create(&self.labels(operation_type, phase)).dec();
        self.oldest.left(phase, since);
        if let Some((since, until)) = since.zip(until) {
            let seconds = until.saturating_sub(since).max(0) as f64 / 1e9;
            let exemplar = trace.map(|trace| TraceLabels { trace_id: trace.to_string() });
            let of_phase = self.phase_seconds.get_or_create(&PhaseLabels { phase: phase.as_str() });
            of_phase.observe(seconds, exemplar, None);
        }
    }

    /// Counts an operation that proceeds although its pod is busy.
    pub(crate) fn overran(&self, operation_type: &str) {
        self.busy_overruns.get_or_create(&self.type_labels(operation_type)).inc();
    }

    /// Counts an operation whose result is refused.
    pub(crate) fn refused(&self, operation_type: &str) {
        self.results_refused.get_or_create(&self.type_labels(operation_type)).inc();
    }

    fn type_labels(&self, operation_type: &str) -> TypeLabels {
        TypeLabels { operation_type: self.types.admit(operation_type).to_owned() }
    }

    fn labels(&self, operation_type: &str, phase: OperationPhase) -> OperationLabels {
        let TypeLabels { operation_type } = self.type_labels(operation_type);
        OperationLabels { operation_type, phase: phase.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use podward_support::metrics_text;

    use super::*;

    #[test]
    fn many_types_of_a_tenant_do_not_hide_deletes() {
        let (metrics, mut registry) = (Metrics::new(), Registry::with_prefix("podward"));
        metrics.register(&mut registry);
        let enter = |operation_type: &str| metrics.entered(operation_type, OperationPhase::Preparing, None);
        (0..MAX_TYPES).for_each(|number| enter(&format!("type-{number}")));
        enter(DELETE_TYPE);
        metrics.overran("type-1");
        let text = metrics_text(&registry);
        let line = |operation_type: &str| {
            format!("podward_operations{{operation_type=\"{operation_type}\",phase=\"Preparing\"}}")
        };
        assert!(text.contains(&format!("{} 1", line(DELETE_TYPE))), "{text}");
        assert!(text.contains(&format!("{} 3", line("other"))), "{text}");
        metrics.forget_operations();
        enter("type-99");
        let text = metrics_text(&registry);
        assert!(text.contains(&line("type-99")) && !text.contains("type-1\""), "{text}");
    }
}
