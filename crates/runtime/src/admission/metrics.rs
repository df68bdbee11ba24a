//! What is counted of admission requests.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::decision::Hindrance;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Allowed, unchanged.
    Allowed,
    /// Allowed, changed.
    Patched,
    /// A judgement against the write.
    Denied,
    /// Not a review that could be judged.
    Invalid,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Patched => "patched",
            Outcome::Denied => "denied",
            Outcome::Invalid => "invalid",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    webhook: &'static str,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HindranceLabels {
    webhook: &'static str,
    reason: &'static str,
}

/// Counters of an [`AdmissionService`](super::AdmissionService). Clones share their figures.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<DurationLabels, Histogram, fn() -> Histogram>,
    warnings: Family<DurationLabels, Counter>,
    undecided: Family<HindranceLabels, Counter>,
    pub(super) in_flight: Gauge<i64, AtomicI64>,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            // 50 us to 26 s: a decision takes tens of microseconds, and the API server waits for 30 s at most.
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 2.0, 20))),
            warnings: Family::default(),
            undecided: Family::default(),
            in_flight: Gauge::default(),
        }
    }
}

impl AdmissionMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("admission");
        registry.register(
            "requests",
            "Admission requests, by path, operation and outcome",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "From the request's head to its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register("warnings", "Requests answered with a warning, by path", self.warnings.clone());
        registry.register(
            "undecided",
            "Requests that were answered with 429 because too many decisions were waiting (busy) or theirs took too long (late)",
            self.undecided.clone(),
        );
        registry.register("in_flight", "Requests that are being answered", self.in_flight.clone());
    }

    pub(super) fn finished(
        &self,
        webhook: &'static str,
        operation: &'static str,
        outcome: Outcome,
        took: Duration,
    ) {
        self.requests.get_or_create(&RequestLabels { webhook, operation, outcome: outcome.as_str() }).inc();
        self.duration.get_or_create(&DurationLabels { webhook }).observe(took.as_secs_f64());
    }

    pub(super) fn warned(&self, webhook: &'static str) {
        self.warnings.get_or_create(&DurationLabels { webhook }).inc();
    }

    pub(super) fn hindered(&self, webhook: &'static str, hindrance: Hindrance) {
        self.undecided.get_or_create(&HindranceLabels { webhook, reason: hindrance.as_str() }).inc();
    }
}
