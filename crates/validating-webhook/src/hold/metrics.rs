//! The metrics of deletes and evictions.

use std::time::Duration;

use podward_core::deletion::hold::AllowReason;
use podward_core::deletion::request::DeletionKind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

/// The reason why a delete or an eviction was answered with 429, 403 or 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldResult {
    /// The request was already recorded on the pod.
    Known,
    /// The request was recorded now.
    Recorded,
    /// A budget or the replica count of the owner does not allow the deletion now.
    Refused,
    /// The user has no right to the deletion. The API server asks only about users who have it, so the review is forged,
    /// or the right was revoked a moment ago.
    Forbidden,
    /// The request could not be recorded.
    Unrecorded,
    /// The pod, or what is needed to know whether it is meant, could not be read.
    Unseen,
    /// The pod that the caller means is gone, and another one has its name.
    Replaced,
}

impl HoldResult {
    const fn as_str(self) -> &'static str {
        match self {
            HoldResult::Known => "known",
            HoldResult::Recorded => "recorded",
            HoldResult::Refused => "refused",
            HoldResult::Forbidden => "forbidden",
            HoldResult::Unrecorded => "unrecorded",
            HoldResult::Unseen => "unseen",
            HoldResult::Replaced => "replaced",
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
    fn of(kind: DeletionKind, reason: AllowReason) -> Self {
        Self { kind: kind.noun(), reason: reason.as_str() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: String,
}

#[derive(Clone, Debug)]
pub(super) struct HoldMetrics {
    held: Family<HeldLabels, Counter>,
    allowed: Family<AllowedLabels, Counter>,
    call: Histogram,
    call_failures: Family<CodeLabels, Counter>,
    wait: Histogram,
    delayed: Counter,
}

impl Default for HoldMetrics {
    fn default() -> Self {
        let metrics = Self {
            held: Family::default(),
            allowed: Family::default(),
            // 1 ms to 4 s.
            call: Histogram::new(exponential_buckets(0.001, 2.0, 13)),
            call_failures: Family::default(),
            // 0.1 to 26 s.
            wait: Histogram::new(exponential_buckets(0.1, 2.0, 9)),
            delayed: Counter::default(),
        };
        // `increase` needs a value before the first event. For these reasons the first event matters.
        for kind in [DeletionKind::Delete, DeletionKind::Evict] {
            for reason in [AllowReason::BreakGlass, AllowReason::NoGate] {
                drop(metrics.allowed.get_or_create(&AllowedLabels::of(kind, reason)));
            }
        }
        metrics
    }
}

impl HoldMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "held",
            "Deletes and evictions that were answered with 429, by the result of recording the deletion request",
            self.held.clone(),
        );
        registry.register(
            "allowed",
            "Deletes and evictions that were allowed, by reason; gone: the pod did not exist",
            self.allowed.clone(),
        );
        registry.register_with_unit(
            "request_deletion",
            "Duration of calls of RequestDeletion",
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
            "Duration of the waits of deletes until the pod was drained (--wait)",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register(
            "repeated_deletes_delayed",
            "Answers to workload controllers that were delayed because they repeat many deletes that are held",
            self.delayed.clone(),
        );
    }

    pub(super) fn count_delayed(&self) {
        self.delayed.inc();
    }

    pub(super) fn count_held(&self, kind: DeletionKind, result: HoldResult) {
        self.held.get_or_create(&HeldLabels { kind: kind.noun(), outcome: result.as_str() }).inc();
    }

    pub(super) fn count_allowed(&self, kind: DeletionKind, reason: AllowReason) {
        self.allowed.get_or_create(&AllowedLabels::of(kind, reason)).inc();
    }

    pub(super) fn count_gone(&self, kind: DeletionKind) {
        self.allowed.get_or_create(&AllowedLabels { kind: kind.noun(), reason: "gone" }).inc();
    }

    pub(super) fn observe_call(&self, took: Duration, failure: Option<Code>) {
        self.call.observe(took.as_secs_f64());
        if let Some(code) = failure {
            self.call_failures.get_or_create(&CodeLabels { code: format!("{code:?}") }).inc();
        }
    }

    pub(super) fn observe_wait(&self, took: Duration) {
        self.wait.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use podward_support::metrics_text;

    use super::*;

    #[test]
    fn reasons_without_draining_have_a_value_before_the_first_event() {
        let mut registry = Registry::default();
        let metrics = HoldMetrics::default();
        metrics.register(&mut registry);
        metrics.count_allowed(DeletionKind::Evict, AllowReason::NoGate);
        let text = metrics_text(&registry);
        for (kind, reason, count) in [
            ("deletion", "break_glass", 0),
            ("deletion", "no_gate", 0),
            ("eviction", "break_glass", 0),
            ("eviction", "no_gate", 1),
        ] {
            let line = format!("allowed_total{{kind=\"{kind}\",reason=\"{reason}\"}} {count}");
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
    }
}
