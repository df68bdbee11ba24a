//! The controller's metrics.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::Mutex;
use podward_core::hooks::EvidenceLevel;
use podward_core::trace::TraceId;
use podward_core::{HookEvent, HookReport, OperationPhase, UnixNanos};
use podward_kube_util::EventMetrics;
use podward_kube_util::watched::WatchMetrics;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use podward_deletion::DeletionMetrics;
use podward_hooks::HookMetrics;
use podward_rules::RuleMetrics;

use super::oldest_operations::OldestOperations;

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
struct AnswerLabels {
    hook: String,
    phase: &'static str,
    outcome: &'static str,
    evidence: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: String,
    phase: &'static str,
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
/// Limits the label `hook`. Further hooks are counted as `other`.
const MAX_HOOKS: usize = 100;
const OTHERS: &str = "other";

/// The metrics of the controller.
#[derive(Debug)]
pub(crate) struct Metrics {
    operations: Family<OperationLabels, Gauge<i64, AtomicI64>>,
    oldest: OldestOperations,
    phase_seconds: Family<PhaseLabels, PhaseHistogram, fn() -> PhaseHistogram>,
    writes: Family<WriteLabels, Counter<u64, AtomicU64>>,
    errors: Family<ErrorLabels, Counter<u64, AtomicU64>>,
    pub(crate) events: EventMetrics,
    consumer_answers: Family<AnswerLabels, Counter<u64, AtomicU64>>,
    consumer_wait: Family<HookLabels, Histogram, fn() -> Histogram>,
    consumer_timeouts: Family<HookLabels, Counter<u64, AtomicU64>>,
    busy_overruns: Family<TypeLabels, Counter<u64, AtomicU64>>,
    results_refused: Family<TypeLabels, Counter<u64, AtomicU64>>,
    pub(crate) busy_waiting: Gauge<i64, AtomicI64>,
    pub(crate) queue_depth: Gauge<i64, AtomicI64>,
    pub(crate) leader: Gauge<i64, AtomicI64>,
    pub(crate) callbacks: HookMetrics,
    pub(crate) deletions: DeletionMetrics,
    pub(crate) rules: RuleMetrics,
    pub(crate) watches: WatchMetrics,
    types: Mutex<HashSet<String>>,
    hooks: Mutex<HashSet<String>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let writes: Family<WriteLabels, Counter<u64, AtomicU64>> = Family::default();
        let sent = writes.get_or_create(&WriteLabels { kind: WriteKind::Event }).clone();
        Metrics {
            operations: Family::default(),
            oldest: OldestOperations::default(),
            phase_seconds: Family::new_with_constructor(|| {
                HistogramWithExemplars::new(exponential_buckets(0.005, 2.0, 18))
            }),
            writes,
            errors: Family::default(),
            events: EventMetrics { sent, ..EventMetrics::default() },
            consumer_answers: Family::default(),
            consumer_wait: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.01, 2.0, 18))
            }),
            consumer_timeouts: Family::default(),
            busy_overruns: Family::default(),
            results_refused: Family::default(),
            busy_waiting: Gauge::default(),
            queue_depth: Gauge::default(),
            leader: Gauge::default(),
            callbacks: HookMetrics::default(),
            deletions: DeletionMetrics::new(),
            rules: RuleMetrics::default(),
            watches: WatchMetrics::default(),
            types: Mutex::default(),
            hooks: Mutex::default(),
        }
    }

    /// Resets the gauges that only a leader knows.
    pub(crate) fn forget_operations(&self) {
        self.operations.clear();
        self.oldest.clear();
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
        registry.register(
            "events_dropped",
            "Events that were not stored, because the queue was full or the request failed",
            self.events.dropped.clone(),
        );
        registry.register(
            "queue_depth",
            "Pods that wait for their turn to leave service, or for a free write slot",
            self.queue_depth.clone(),
        );
        registry.register(
            "consumer_answers",
            "Answers of hooks that took effect, by hook, phase, outcome and evidence",
            self.consumer_answers.clone(),
        );
        registry.register_with_unit(
            "consumer_wait",
            "Time from the first request to a hook until its answer took effect",
            Unit::Seconds,
            self.consumer_wait.clone(),
        );
        registry.register(
            "consumer_timeouts",
            "Requests to hooks that were open past their deadline",
            self.consumer_timeouts.clone(),
        );
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

    /// Counts an answer or a missed deadline of a hook.
    pub(crate) fn hook_reported(&self, note: &HookReport, now: UnixNanos) {
        let (outcome, evidence) = match &note.event {
            HookEvent::Done(level) => ("done", level.as_str()),
            HookEvent::Proceeded => ("proceeded", EvidenceLevel::TimedOut.as_str()),
            HookEvent::Cancelled(_) => ("cancelled", ""),
            HookEvent::Rejected(_) => ("rejected", ""),
            HookEvent::Overdue => ("overdue", ""),
            HookEvent::Removed | HookEvent::Released => return,
        };
        let hook = within(&self.hooks, MAX_HOOKS, &note.hook).to_owned();
        let of_hook = HookLabels { hook: hook.clone(), phase: note.phase.as_str() };
        if let HookEvent::Proceeded | HookEvent::Cancelled(_) | HookEvent::Overdue = note.event {
            self.consumer_timeouts.get_or_create(&of_hook).inc();
        }
        if note.event == HookEvent::Overdue {
            return;
        }
        if let HookEvent::Done(_) | HookEvent::Proceeded = note.event {
            let seconds = now.0.saturating_sub(note.since.0).max(0) as f64 / 1e9;
            self.consumer_wait.get_or_create(&of_hook).observe(seconds);
        }
        let labels = AnswerLabels { hook, phase: note.phase.as_str(), outcome, evidence };
        self.consumer_answers.get_or_create(&labels).inc();
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
        TypeLabels { operation_type: within(&self.types, MAX_TYPES, operation_type).to_owned() }
    }

    fn labels(&self, operation_type: &str, phase: OperationPhase) -> OperationLabels {
        let TypeLabels { operation_type } = self.type_labels(operation_type);
        OperationLabels { operation_type, phase: phase.as_str() }
    }
}

/// Returns `name` if it is one of the first `most` names, `other` otherwise.
fn within<'n>(seen: &Mutex<HashSet<String>>, most: usize, name: &'n str) -> &'n str {
    let mut seen = seen.lock();
    let known = seen.contains(name) || (seen.len() < most && seen.insert(name.to_owned()));
    if known { name } else { OTHERS }
}
