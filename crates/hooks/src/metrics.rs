//! Metrics of hooks and the calls to them.

use std::sync::atomic::{AtomicI64, AtomicU64};

use podward_core::hooks::HookPhase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::questions::request;

/// Outcomes of calls without an answer. [`HookReply::as_str`](super::response::HookReply::as_str) has the others.
pub(crate) const UNREACHABLE: &str = "UNREACHABLE";
pub(crate) const FAILED: &str = "FAILED";
pub(crate) const CANCELLED: &str = "CANCELLED";
const OUTCOMES: [&str; 6] = ["DONE", "PENDING", "REJECTED", UNREACHABLE, FAILED, CANCELLED];
const PHASES: [HookPhase; 5] =
    [HookPhase::PreCheck, HookPhase::Prepare, HookPhase::PostCheck, HookPhase::Complete, HookPhase::Release];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    hook: String,
    phase: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: String,
}

/// The metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    calls: Family<CallLabels, Counter<u64, AtomicU64>>,
    seconds: Family<HookLabels, Histogram, fn() -> Histogram>,
    open: Family<HookLabels, Gauge<i64, AtomicI64>>,
    reachable: Family<HookLabels, Gauge<i64, AtomicI64>>,
    ignored: Family<HookLabels, Counter<u64, AtomicU64>>,
}

impl Default for HookMetrics {
    fn default() -> Self {
        HookMetrics {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            open: Family::default(),
            reachable: Family::default(),
            ignored: Family::default(),
        }
    }
}

impl HookMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("hook_calls", "Calls to hooks, by phase and outcome", self.calls.clone());
        registry.register_with_unit(
            "hook_call",
            "Duration of answered calls to hooks",
            Unit::Seconds,
            self.seconds.clone(),
        );
        registry.register(
            "hook_questions_open",
            "Questions that a hook has not yet answered with DONE",
            self.open.clone(),
        );
        registry.register(
            "hook_reachable",
            "1 while the hook is reachable, otherwise 0",
            self.reachable.clone(),
        );
        registry.register(
            "hook_answers_ignored",
            "Answers of attached hooks that match no open call",
            self.ignored.clone(),
        );
    }

    pub(crate) fn called(&self, hook: &str, phase: HookPhase, outcome: &'static str) {
        let labels = CallLabels { hook: hook.to_owned(), phase: request::name(phase), outcome };
        self.calls.get_or_create(&labels).inc();
    }

    pub(crate) fn took(&self, hook: &str, seconds: f64) {
        self.seconds.get_or_create(&labels(hook)).observe(seconds);
    }

    pub(crate) fn open(&self, hook: &str, questions: usize) {
        self.open.get_or_create(&labels(hook)).set(i64::try_from(questions).unwrap_or(i64::MAX));
    }

    pub(crate) fn reachable(&self, hook: &str, reachable: bool) {
        self.reachable.get_or_create(&labels(hook)).set(i64::from(reachable));
    }

    pub(crate) fn ignored(&self, hook: &str) {
        self.ignored.get_or_create(&labels(hook)).inc();
    }

    #[cfg(test)]
    pub(crate) fn ignored_so_far(&self, hook: &str) -> u64 {
        self.ignored.get_or_create(&labels(hook)).get()
    }

    /// Removes all series of `hook`.
    pub(crate) fn forget(&self, hook: &str) {
        for phase in PHASES {
            for outcome in OUTCOMES {
                self.calls.remove(&CallLabels {
                    hook: hook.to_owned(),
                    phase: request::name(phase),
                    outcome,
                });
            }
        }
        self.seconds.remove(&labels(hook));
        self.open.remove(&labels(hook));
        self.reachable.remove(&labels(hook));
        self.ignored.remove(&labels(hook));
    }

    /// Removes all series, because only the leader calls hooks.
    pub(crate) fn forget_all(&self) {
        self.calls.clear();
        self.seconds.clear();
        self.open.clear();
        self.reachable.clear();
        self.ignored.clear();
    }
}

fn labels(hook: &str) -> HookLabels {
    HookLabels { hook: hook.to_owned() }
}

#[cfg(test)]
mod tests {
    use podward_support::metrics_text;

    use super::*;

    #[test]
    fn a_removed_hook_leaves_no_labels() {
        let (metrics, mut registry) = (HookMetrics::default(), Registry::with_prefix("podward"));
        metrics.register(&mut registry);
        for hook in ["gone", "stays"] {
            metrics.called(hook, HookPhase::Prepare, FAILED);
            metrics.took(hook, 0.1);
            metrics.open(hook, 3);
            metrics.reachable(hook, true);
            metrics.ignored(hook);
        }
        assert!(
            metrics_text(&registry)
                .contains(r#"podward_hook_calls_total{hook="gone",phase="PREPARE",outcome="FAILED"} 1"#)
        );
        assert!(metrics_text(&registry).contains("podward_hook_call_seconds_bucket"));
        metrics.forget("gone");
        let text = metrics_text(&registry);
        assert!(!text.contains("gone"), "{text}");
        assert!(text.contains(r#"podward_hook_reachable{hook="stays"} 1"#), "{text}");
    }
}
