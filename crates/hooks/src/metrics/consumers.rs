//! The metrics of what hooks mean for pods: answers that took effect, and missed deadlines.

use std::sync::atomic::AtomicU64;

use podward_core::hooks::EvidenceLevel;
use podward_core::{HookEvent, HookReport, UnixNanos};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::questions::request::PHASES;

const OUTCOMES: [&str; 4] = ["done", "proceeded", "cancelled", "rejected"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    hook: String,
    phase: &'static str,
    outcome: &'static str,
    evidence: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    hook: String,
    phase: &'static str,
}

/// The metrics. Clones share their values.
#[derive(Clone, Debug)]
pub(super) struct ConsumerMetrics {
    answers: Family<AnswerLabels, Counter<u64, AtomicU64>>,
    wait: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    timeouts: Family<PhaseLabels, Counter<u64, AtomicU64>>,
}

impl Default for ConsumerMetrics {
    fn default() -> Self {
        ConsumerMetrics {
            answers: Family::default(),
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 18))),
            timeouts: Family::default(),
        }
    }
}

impl ConsumerMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "consumer_answers",
            "Answers of hooks that took effect, by hook, phase, outcome and evidence",
            self.answers.clone(),
        );
        registry.register_with_unit(
            "consumer_wait",
            "Time from the first request to a hook until its answer took effect",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register(
            "consumer_timeouts",
            "Requests to hooks that were open past their deadline",
            self.timeouts.clone(),
        );
    }

    /// Counts an answer or a missed deadline of `hook`, a value of the label.
    pub(super) fn reported(&self, hook: &str, note: &HookReport, now: UnixNanos) {
        let (outcome, evidence) = match &note.event {
            HookEvent::Done(level) => ("done", level.as_str()),
            HookEvent::Proceeded => ("proceeded", EvidenceLevel::TimedOut.as_str()),
            HookEvent::Cancelled(_) => ("cancelled", ""),
            HookEvent::Rejected(_) => ("rejected", ""),
            HookEvent::Overdue => ("overdue", ""),
            HookEvent::Removed | HookEvent::Released => return,
        };
        let of_hook = PhaseLabels { hook: hook.to_owned(), phase: note.phase.as_str() };
        if let HookEvent::Proceeded | HookEvent::Cancelled(_) | HookEvent::Overdue = note.event {
            self.timeouts.get_or_create(&of_hook).inc();
        }
        if note.event == HookEvent::Overdue {
            return;
        }
        if let HookEvent::Done(_) | HookEvent::Proceeded = note.event {
            let seconds = now.0.saturating_sub(note.since.0).max(0) as f64 / 1e9;
            self.wait.get_or_create(&of_hook).observe(seconds);
        }
        let labels = AnswerLabels { hook: hook.to_owned(), phase: note.phase.as_str(), outcome, evidence };
        self.answers.get_or_create(&labels).inc();
    }

    /// Removes the series of `hook`.
    pub(super) fn forget(&self, hook: &str) {
        let levels = EvidenceLevel::ALL.map(EvidenceLevel::as_str);
        for phase in PHASES.map(|phase| phase.as_str()) {
            let of_hook = PhaseLabels { hook: hook.to_owned(), phase };
            self.wait.remove(&of_hook);
            self.timeouts.remove(&of_hook);
            for outcome in OUTCOMES {
                for evidence in levels.into_iter().chain([""]) {
                    let hook = hook.to_owned();
                    self.answers.remove(&AnswerLabels { hook, phase, outcome, evidence });
                }
            }
        }
    }

    pub(super) fn clear(&self) {
        self.answers.clear();
        self.wait.clear();
        self.timeouts.clear();
    }
}
