//! What is counted of calls to the webhooks of rules.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::RuleId;

/// A histogram for each rule is much; past this many the rest is counted together.
const MOST_RULES: usize = 200;
const OTHERS: &str = "other";

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// It agrees to all that it was asked about.
    Passed,
    /// It takes its time, and is polled.
    Polling,
    /// It doesn't agree, or not to all.
    Rejected,
    /// Nobody is reached there, or nobody who is believed.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// An error, or what can't be understood.
    Failed,
    /// It was not asked: something is wrong on this side.
    Unsent,
}

impl Outcome {
    const ALL: [Outcome; 7] = [
        Outcome::Passed,
        Outcome::Polling,
        Outcome::Rejected,
        Outcome::Unreachable,
        Outcome::Timeout,
        Outcome::Failed,
        Outcome::Unsent,
    ];

    /// As metrics and spans have it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Polling => "polling",
            Outcome::Rejected => "rejected",
            Outcome::Unreachable => "unreachable",
            Outcome::Timeout => "timeout",
            Outcome::Failed => "failed",
            Outcome::Unsent => "unsent",
        }
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    namespace: String,
    /// With namespace and object: whoever scrapes may have another idea of what the label `namespace` says.
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    namespace: String,
    rule: String,
    outcome: Outcome,
}

impl RuleLabels {
    fn with(self, outcome: Outcome) -> CallLabels {
        CallLabels { namespace: self.namespace, rule: self.rule, outcome }
    }
}

/// The metrics. Clones share their figures.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    calls: Family<CallLabels, Counter<u64, AtomicU64>>,
    seconds: Family<RuleLabels, Histogram, fn() -> Histogram>,
    rules: Arc<Mutex<HashSet<RuleLabels>>>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            rules: Arc::default(),
        }
    }
}

impl WebhookMetrics {
    /// Adds the metrics to `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "webhook_calls",
            "Calls to the webhooks of PodTransitionRules, by rule and outcome",
            self.calls.clone(),
        );
        registry.register_with_unit(
            "webhook_call",
            "Time that calls to the webhooks of PodTransitionRules took that were answered",
            Unit::Seconds,
            self.seconds.clone(),
        );
    }

    pub(super) fn called(&self, rule: &RuleId, outcome: Outcome) {
        self.calls.get_or_create(&self.labels(rule).with(outcome)).inc();
    }

    pub(super) fn took(&self, rule: &RuleId, time: Duration) {
        self.seconds.get_or_create(&self.labels(rule)).observe(time.as_secs_f64());
    }

    #[cfg(test)]
    pub(super) fn so_far(&self, rule: &RuleId, outcome: Outcome) -> u64 {
        self.calls.get(&labels(rule).with(outcome)).map_or(0, |calls| calls.get())
    }

    /// Nothing is asked about `rule` any more: its series go.
    pub(super) fn forget(&self, rule: &RuleId) {
        let labels = labels(rule);
        if !self.rules.lock().remove(&labels) {
            return;
        }
        for outcome in Outcome::ALL {
            self.calls.remove(&labels.clone().with(outcome));
        }
        self.seconds.remove(&labels);
    }

    /// A replica that doesn't lead asks nobody.
    pub(crate) fn forget_all(&self) {
        self.rules.lock().clear();
        self.calls.clear();
        self.seconds.clear();
    }

    fn labels(&self, rule: &RuleId) -> RuleLabels {
        let labels = labels(rule);
        let mut rules = self.rules.lock();
        if rules.contains(&labels) || (rules.len() < MOST_RULES && rules.insert(labels.clone())) {
            return labels;
        }
        RuleLabels { namespace: OTHERS.to_owned(), rule: OTHERS.to_owned() }
    }
}

fn labels(RuleId { namespace, object, rule, .. }: &RuleId) -> RuleLabels {
    RuleLabels { namespace: namespace.clone(), rule: format!("{namespace}/{object}/{rule}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    fn rule(name: &str) -> RuleId {
        let (namespace, object, uid) = ("shop".to_owned(), "web".to_owned(), "u".to_owned());
        RuleId { namespace, object, uid, rule: name.to_owned() }
    }

    #[test]
    fn a_rule_that_is_gone_leaves_no_series() {
        let (metrics, mut registry) = (WebhookMetrics::default(), Registry::with_prefix("podward_rule"));
        metrics.register(&mut registry);
        for name in ["gone", "stays"] {
            Outcome::ALL.into_iter().for_each(|outcome| metrics.called(&rule(name), outcome));
            metrics.took(&rule(name), Duration::from_millis(3));
        }
        let line =
            r#"podward_rule_webhook_calls_total{namespace="shop",rule="shop/web/gone",outcome="timeout"} 1"#;
        assert!(text(&registry).contains(line), "{}", text(&registry));
        metrics.forget(&rule("gone"));
        let left = text(&registry);
        assert!(!left.contains("gone"), "{left}");
        assert!(
            left.contains(
                r#"podward_rule_webhook_call_seconds_count{namespace="shop",rule="shop/web/stays"} 1"#
            ),
            "{left}"
        );
        metrics.forget_all();
        assert!(!text(&registry).contains("stays"));
    }

    #[test]
    fn many_rules_are_counted_together() {
        let (metrics, mut registry) = (WebhookMetrics::default(), Registry::with_prefix("podward_rule"));
        metrics.register(&mut registry);
        let all: Vec<RuleId> = (0..MOST_RULES + 7).map(|number| rule(&format!("r{number}"))).collect();
        all.iter().for_each(|rule| metrics.called(rule, Outcome::Passed));
        let line = r#"podward_rule_webhook_calls_total{namespace="other",rule="other",outcome="passed"} 7"#;
        assert!(text(&registry).contains(line));
        // There is room again when one goes.
        metrics.forget(&all[0]);
        metrics.called(&rule("new"), Outcome::Passed);
        assert!(text(&registry).contains("shop/web/new"));
    }
}
