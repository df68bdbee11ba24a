//! What is counted of deletes and evictions.

use std::time::Duration;

use podward_core::hold::Reason;
use podward_core::wish::DeletionKind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

/// Why a delete or an eviction was answered with 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The wish stood on the pod already.
    Known,
    /// The wish was recorded now.
    Recorded,
    /// The budget, or the owner's number of pods, doesn't allow it now.
    Refused,
    /// The wish could not be recorded.
    Unrecorded,
    /// The pod could not be looked at.
    Unseen,
}

impl Held {
    const fn as_str(self) -> &'static str {
        match self {
            Held::Known => "known",
            Held::Recorded => "recorded",
            Held::Refused => "refused",
            Held::Unrecorded => "unrecorded",
            Held::Unseen => "unseen",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HeldLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AllowedLabels {
    kind: &'static str,
    reason: &'static str,
}

impl AllowedLabels {
    fn of(kind: DeletionKind, reason: Reason) -> Self {
        Self { kind: kind.noun(), reason: reason.as_str() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    held: Family<HeldLabels, Counter>,
    allowed: Family<AllowedLabels, Counter>,
    call: Histogram,
    call_failures: Family<CodeLabels, Counter>,
    wait: Histogram,
    dropped_events: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            held: Family::default(),
            allowed: Family::default(),
            // 1 ms to 4 s.
            call: Histogram::new(exponential_buckets(0.001, 2.0, 13)),
            call_failures: Family::default(),
            // 0.1 to 26 s.
            wait: Histogram::new(exponential_buckets(0.1, 2.0, 9)),
            dropped_events: Counter::default(),
        };
        // An increase is seen only of what was there before, and of these already the first matters.
        for kind in [DeletionKind::Delete, DeletionKind::Evict] {
            for reason in [Reason::BreakGlass, Reason::NoGate] {
                drop(metrics.allowed.get_or_create(&AllowedLabels::of(kind, reason)));
            }
        }
        metrics
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "held",
            "Deletes and evictions that were answered with 429, by what became of the wish",
            self.held.clone(),
        );
        registry.register(
            "let_through",
            "Deletes and evictions that were let through, by the reason; gone: there was no such pod (any more)",
            self.allowed.clone(),
        );
        registry.register_with_unit(
            "request_deletion",
            "How long RequestDeletion took",
            Unit::Seconds,
            self.call.clone(),
        );
        registry.register(
            "request_deletion_failures",
            "Calls of RequestDeletion that failed",
            self.call_failures.clone(),
        );
        registry.register_with_unit(
            "delete_wait",
            "How long deletes were kept waiting for their pod to be let go of (--wait)",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were not sent, because too many were on their way or the API server refused them",
            self.dropped_events.clone(),
        );
    }

    pub(crate) fn held(&self, kind: DeletionKind, outcome: Held) {
        self.held.get_or_create(&HeldLabels { kind: kind.noun(), outcome: outcome.as_str() }).inc();
    }

    pub(crate) fn let_through(&self, kind: DeletionKind, reason: Reason) {
        self.allowed.get_or_create(&AllowedLabels::of(kind, reason)).inc();
    }

    pub(crate) fn gone(&self, kind: DeletionKind) {
        self.allowed.get_or_create(&AllowedLabels { kind: kind.noun(), reason: "gone" }).inc();
    }

    pub(crate) fn called(&self, took: Duration, failure: Option<Code>) {
        self.call.observe(took.as_secs_f64());
        if let Some(code) = failure {
            self.call_failures.get_or_create(&CodeLabels { code: format!("{code:?}") }).inc();
        }
    }

    pub(crate) fn waited(&self, took: Duration) {
        self.wait.observe(took.as_secs_f64());
    }

    pub(crate) fn dropped_event(&self) {
        self.dropped_events.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_without_consent_is_there_before_the_first() {
        let mut registry = Registry::default();
        let metrics = Metrics::default();
        metrics.register(&mut registry);
        metrics.let_through(DeletionKind::Evict, Reason::NoGate);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for (kind, reason, count) in [
            ("deletion", "break_glass", 0),
            ("deletion", "no_gate", 0),
            ("eviction", "break_glass", 0),
            ("eviction", "no_gate", 1),
        ] {
            let line = format!("let_through_total{{kind=\"{kind}\",reason=\"{reason}\"}} {count}");
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
    }
}
