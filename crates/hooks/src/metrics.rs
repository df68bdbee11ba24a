//! Metrics of hooks and the calls to them.

mod consumers;
mod states;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use podward_core::hooks::HookPhase;
use podward_core::{HookReport, UnixNanos};
use podward_kube_util::BoundedNames;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::questions::request::PHASES;
use consumers::ConsumerMetrics;
use states::HookStates;

/// Limits the label `hook`, because each hook has about 100 series. Further hooks are counted as `other`.
const MAX_HOOKS: usize = 100;

/// Outcomes of calls without an answer. [`HookReply::as_str`](super::response::HookReply::as_str) has the others.
pub(crate) const UNREACHABLE: &str = "UNREACHABLE";
pub(crate) const FAILED: &str = "FAILED";
pub(crate) const CANCELLED: &str = "CANCELLED";
const OUTCOMES: [&str; 6] = ["DONE", "PENDING", "REJECTED", UNREACHABLE, FAILED, CANCELLED];

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
    names: Arc<BoundedNames>,
    states: HookStates,
    calls: Family<CallLabels, Counter<u64, AtomicU64>>,
    seconds: Family<HookLabels, Histogram, fn() -> Histogram>,
    ignored: Family<HookLabels, Counter<u64, AtomicU64>>,
    consumers: ConsumerMetrics,
}

impl Default for HookMetrics {
    fn default() -> Self {
        let names = Arc::new(BoundedNames::new(MAX_HOOKS));
        HookMetrics {
            states: HookStates::new(names.clone()),
            names,
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            ignored: Family::default(),
            consumers: ConsumerMetrics::default(),
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
        registry.register_collector(Box::new(self.states.clone()));
        registry.register(
            "hook_answers_ignored",
            "Answers of attached hooks that match no open call",
            self.ignored.clone(),
        );
        self.consumers.register(registry);
    }

    /// Returns the value of the label `hook` for the hook of this name: `other` if too many others have one, or if it is
    /// not registered.
    #[must_use]
    pub fn label<'n>(&self, hook: &'n str) -> &'n str {
        self.names.label(hook)
    }

    /// Counts an answer or a missed deadline of a hook.
    pub fn reported(&self, note: &HookReport, now: UnixNanos) {
        self.consumers.reported(self.label(&note.hook), note, now);
    }

    pub(crate) fn called(&self, hook: &str, phase: HookPhase, outcome: &'static str) {
        let HookLabels { hook } = self.labels(hook);
        let labels = CallLabels { hook, phase: phase.as_str(), outcome };
        self.calls.get_or_create(&labels).inc();
    }

    pub(crate) fn took(&self, hook: &str, seconds: f64) {
        self.seconds.get_or_create(&self.labels(hook)).observe(seconds);
    }

    pub(crate) fn open(&self, hook: &str, questions: usize) {
        let questions = i64::try_from(questions).unwrap_or(i64::MAX);
        self.states.update(hook, |state| state.open = Some(questions));
    }

    pub(crate) fn reachable(&self, hook: &str, reachable: bool) {
        self.states.update(hook, |state| state.reachable = Some(reachable));
    }

    /// Records whether the present spec of `hook` is refused.
    pub(crate) fn rejected(&self, hook: &str, rejected: bool) {
        self.states.update(hook, |state| state.rejected = rejected);
    }

    pub(crate) fn ignored(&self, hook: &str) {
        self.ignored.get_or_create(&self.labels(hook)).inc();
    }

    #[cfg(test)]
    pub(crate) fn ignored_so_far(&self, hook: &str) -> u64 {
        self.ignored.get_or_create(&self.labels(hook)).get()
    }

    /// Removes all series of `hook`, which makes room for another one.
    pub(crate) fn forget(&self, hook: &str) {
        self.states.forget(hook);
        if !self.names.remove(hook) {
            return;
        }
        for phase in PHASES {
            for outcome in OUTCOMES {
                let labels = CallLabels { hook: hook.to_owned(), phase: phase.as_str(), outcome };
                self.calls.remove(&labels);
            }
        }
        let labels = HookLabels { hook: hook.to_owned() };
        self.seconds.remove(&labels);
        self.ignored.remove(&labels);
        self.consumers.forget(hook);
    }

    /// Removes all series, because only the leader calls hooks.
    pub fn forget_all(&self) {
        self.names.clear();
        self.states.clear();
        self.calls.clear();
        self.seconds.clear();
        self.ignored.clear();
        self.consumers.clear();
    }

    fn labels(&self, hook: &str) -> HookLabels {
        HookLabels { hook: self.names.admit(hook).to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use podward_core::HookEvent;
    use podward_core::hooks::EvidenceLevel;
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
            metrics.rejected(hook, true);
            for event in [HookEvent::Done(EvidenceLevel::Proven), HookEvent::Proceeded, HookEvent::Overdue] {
                let hook = hook.to_owned();
                let note = HookReport { hook, phase: HookPhase::Prepare, since: UnixNanos(1), event };
                metrics.reported(&note, UnixNanos(2));
            }
        }
        assert!(metrics_text(&registry).contains(r#"podward_hook_rejected{hook="stays"} 1"#));
        assert!(
            metrics_text(&registry)
                .contains(r#"podward_hook_calls_total{hook="gone",phase="PREPARE",outcome="FAILED"} 1"#)
        );
        assert!(metrics_text(&registry).contains("podward_hook_call_seconds_bucket"));
        metrics.forget("gone");
        let text = metrics_text(&registry);
        assert!(!text.contains("gone"), "{text}");
        assert!(text.contains(r#"podward_hook_reachable{hook="stays"} 1"#), "{text}");
        metrics.rejected("stays", false);
        assert!(!metrics_text(&registry).contains("podward_hook_rejected"));
        metrics.forget_all();
        let text = metrics_text(&registry);
        assert!(!text.contains("stays"), "{text}");
    }

    #[test]
    fn hooks_beyond_the_limit_are_counted_together_until_there_is_room() {
        let (metrics, mut registry) = (HookMetrics::default(), Registry::with_prefix("podward"));
        metrics.register(&mut registry);
        let report = |hook: &str| {
            metrics.open(hook, 2);
            metrics.reachable(hook, hook != "hook-100");
            metrics.rejected(hook, hook == "hook-101");
            metrics.called(hook, HookPhase::Prepare, FAILED);
            metrics.took(hook, 0.1);
        };
        (0..MAX_HOOKS + 3).for_each(|number| report(&format!("hook-{number}")));
        let text = metrics_text(&registry);
        for line in [
            r#"podward_hook_questions_open{hook="other"} 6"#,
            r#"podward_hook_reachable{hook="other"} 0"#,
            r#"podward_hook_rejected{hook="other"} 1"#,
            r#"podward_hook_calls_total{hook="other",phase="PREPARE",outcome="FAILED"} 3"#,
            r#"podward_hook_questions_open{hook="hook-99"} 2"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.matches("podward_hook_reachable{").count(), MAX_HOOKS + 1);

        metrics.forget("hook-7");
        report("hook-101");
        let text = metrics_text(&registry);
        assert!(text.contains(r#"podward_hook_rejected{hook="hook-101"} 1"#), "{text}");
        assert!(text.contains(r#"podward_hook_questions_open{hook="other"} 4"#), "{text}");
        assert!(!text.contains(r#"hook="hook-7""#), "{text}");
    }
}
