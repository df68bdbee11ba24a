//! Metrics of admission requests.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::decision::DeferralFailure;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionOutcome {
    /// Allowed without changes.
    Allowed,
    /// Allowed with changes.
    Patched,
    /// Denied by a decision.
    Denied,
    /// Not a valid review.
    Invalid,
    /// Its body was not read: it did not fit into the byte budget, arrived too slowly, or broke off.
    Unread,
}

impl AdmissionOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            AdmissionOutcome::Allowed => "allowed",
            AdmissionOutcome::Patched => "patched",
            AdmissionOutcome::Denied => "denied",
            AdmissionOutcome::Invalid => "invalid",
            AdmissionOutcome::Unread => "unread",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdmissionRequestLabels {
    webhook: &'static str,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UndecidedLabels {
    webhook: &'static str,
    reason: &'static str,
}

/// Counters of an [`AdmissionService`](super::AdmissionService). Clones share their values.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    requests: Family<AdmissionRequestLabels, Counter>,
    duration: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    warnings: Family<WebhookLabels, Counter>,
    undecided: Family<UndecidedLabels, Counter>,
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
            "Seconds from the request's head to its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register("warnings", "Requests answered with a warning, by path", self.warnings.clone());
        registry.register(
            "undecided",
            "Requests answered with 429: too many decisions were waiting (busy), one took too long (late), or the \
             bodies of requests hold too many bytes (memory)",
            self.undecided.clone(),
        );
        registry.register("in_flight", "Requests that are being answered", self.in_flight.clone());
    }

    pub(super) fn finished(
        &self,
        webhook: &'static str,
        operation: &'static str,
        outcome: AdmissionOutcome,
        took: Duration,
    ) {
        self.requests
            .get_or_create(&AdmissionRequestLabels { webhook, operation, outcome: outcome.as_str() })
            .inc();
        self.duration.get_or_create(&WebhookLabels { webhook }).observe(took.as_secs_f64());
    }

    pub(super) fn warned(&self, webhook: &'static str) {
        self.warnings.get_or_create(&WebhookLabels { webhook }).inc();
    }

    /// Counts a request whose body did not fit into the byte budget.
    pub(super) fn out_of_memory(&self, webhook: &'static str) {
        self.undecided.get_or_create(&UndecidedLabels { webhook, reason: "memory" }).inc();
    }

    pub(super) fn undecided(&self, webhook: &'static str, failure: DeferralFailure) {
        self.undecided.get_or_create(&UndecidedLabels { webhook, reason: failure.as_str() }).inc();
    }
}
