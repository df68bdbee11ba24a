//! The controller's metrics.

mod oldest;

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::Mutex;
use podward_core::hooks::EvidenceLevel;
use podward_core::{HookEvent, Note, Phase, UnixNanos};
use podward_runtime::watched::WatchMetrics;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::callbacks::HookMetrics;
use crate::deletion::DeletionMetrics;
use crate::rules::RuleMetrics;

use self::oldest::Oldest;

/// What a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum WriteKind {
    /// The gate, and whatever labels and condition go with it.
    Gate,
    /// Labels or an annotation.
    Metadata,
    /// Only the condition for people.
    Condition,
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    category: &'static str,
}

/// Types are free text of operators; past this many the rest is counted together, so that nobody can fill the memory.
const MOST_TYPES: usize = 50;
/// A histogram for each hook and phase is much; past this many hooks the rest is counted together.
const MOST_HOOKS: usize = 100;
const OTHERS: &str = "other";

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    operations: Family<OperationLabels, Gauge<i64, AtomicI64>>,
    oldest: Oldest,
    phase_seconds: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    writes: Family<WriteLabels, Counter<u64, AtomicU64>>,
    errors: Family<ErrorLabels, Counter<u64, AtomicU64>>,
    events_dropped: Counter,
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
        Metrics {
            operations: Family::default(),
            oldest: Oldest::default(),
            phase_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.005, 2.0, 18))
            }),
            writes: Family::default(),
            errors: Family::default(),
            events_dropped: Counter::default(),
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

    /// A replica that doesn't lead knows nothing of operations.
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
            "Operations on pods at present, by type and phase",
            self.operations.clone(),
        );
        registry.register_collector(Box::new(self.oldest.clone()));
        registry.register_with_unit(
            "operation_phase",
            "Time that operations spent in a phase they have left",
            Unit::Seconds,
            self.phase_seconds.clone(),
        );
        registry.register("writes", "Writes to the API server, by what they go to", self.writes.clone());
        registry.register("errors", "Failed reconciliations, by category", self.errors.clone());
        registry.register(
            "events_dropped",
            "Events not sent because the API server was too slow",
            self.events_dropped.clone(),
        );
        registry.register(
            "queue_depth",
            "Pods that wait for their turn to be written",
            self.queue_depth.clone(),
        );
        registry.register(
            "consumer_answers",
            "Answers of hooks that were acted on, by hook, phase, outcome and evidence",
            self.consumer_answers.clone(),
        );
        registry.register_with_unit(
            "consumer_wait",
            "Time from when a hook was first asked until its answer was acted on",
            Unit::Seconds,
            self.consumer_wait.clone(),
        );
        registry.register(
            "consumer_timeouts",
            "Questions that were open past their deadline",
            self.consumer_timeouts.clone(),
        );
        registry.register(
            "busy_overruns",
            "Operations that went on although their pod was busy, because the maximum had passed",
            self.busy_overruns.clone(),
        );
        registry.register(
            "results_refused",
            "Operations whose operator was told that their result is refused",
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

    pub(crate) fn dropped_event(&self) {
        self.events_dropped.inc();
    }

    /// An operation is in `phase` now, and has been since then, in nanoseconds since the Unix epoch.
    pub(crate) fn entered(&self, operation_type: &str, phase: Phase, since: Option<i64>) {
        self.operations.get_or_create(&self.labels(operation_type, phase)).inc();
        self.oldest.entered(phase, since);
    }

    /// The operation that had been in `phase` since then isn't any more. It left it at `until`; `None` where nobody knows.
    pub(crate) fn left(&self, operation_type: &str, phase: Phase, since: Option<i64>, until: Option<i64>) {
        self.operations.get_or_create(&self.labels(operation_type, phase)).dec();
        self.oldest.left(phase, since);
        if let Some((since, until)) = since.zip(until) {
            let seconds = until.saturating_sub(since).max(0) as f64 / 1e9;
            self.phase_seconds.get_or_create(&PhaseLabels { phase: phase.as_str() }).observe(seconds);
        }
    }

    /// A hook has answered, or its deadline has passed.
    pub(crate) fn heard(&self, note: &Note, now: UnixNanos) {
        let (outcome, evidence) = match &note.event {
            HookEvent::Done(level) => ("done", level.as_str()),
            HookEvent::Proceeded => ("proceeded", EvidenceLevel::TimedOut.as_str()),
            HookEvent::Cancelled(_) => ("cancelled", ""),
            HookEvent::Rejected(_) => ("rejected", ""),
            HookEvent::Overdue => ("overdue", ""),
            HookEvent::Removed | HookEvent::Released => return,
        };
        let hook = within(&self.hooks, MOST_HOOKS, &note.hook).to_owned();
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

    /// An operation goes on although its pod is busy.
    pub(crate) fn overran(&self, operation_type: &str) {
        self.busy_overruns.get_or_create(&self.type_labels(operation_type)).inc();
    }

    /// The operator of an operation is told that its result is refused.
    pub(crate) fn refused(&self, operation_type: &str) {
        self.results_refused.get_or_create(&self.type_labels(operation_type)).inc();
    }

    fn type_labels(&self, operation_type: &str) -> TypeLabels {
        TypeLabels { operation_type: within(&self.types, MOST_TYPES, operation_type).to_owned() }
    }

    fn labels(&self, operation_type: &str, phase: Phase) -> OperationLabels {
        let TypeLabels { operation_type } = self.type_labels(operation_type);
        OperationLabels { operation_type, phase: phase.as_str() }
    }
}

/// `name`, if it is among the first `most` that were counted.
fn within<'n>(seen: &Mutex<HashSet<String>>, most: usize, name: &'n str) -> &'n str {
    let mut seen = seen.lock();
    let known = seen.contains(name) || (seen.len() < most && seen.insert(name.to_owned()));
    if known { name } else { OTHERS }
}
