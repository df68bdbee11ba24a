//! The metrics of calls to the webhooks of rules.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use podward_kube_util::BoundedNames;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::outcome::RuleWebhookOutcome;
use super::rule_id::WebhookRuleId;

/// Each rule has a histogram. The rules beyond this number are counted together.
const MAX_RULES: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookRuleLabels {
    /// `namespace/object/rule`. Prometheus sets the label `namespace` to that of the scraped pod.
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookCallLabels {
    rule: String,
    outcome: RuleWebhookOutcome,
}

impl WebhookRuleLabels {
    fn with(self, outcome: RuleWebhookOutcome) -> WebhookCallLabels {
        WebhookCallLabels { rule: self.rule, outcome }
    }
}

/// The metrics of calls. Clones share the values.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    calls: Family<WebhookCallLabels, Counter<u64, AtomicU64>>,
    seconds: Family<WebhookRuleLabels, Histogram, fn() -> Histogram>,
    rules: Arc<BoundedNames>,
    waiting: Gauge,
    in_flight: Gauge,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            rules: Arc::new(BoundedNames::new(MAX_RULES)),
            waiting: Gauge::default(),
            in_flight: Gauge::default(),
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
            "Duration of answered calls to the webhooks of PodTransitionRules",
            Unit::Seconds,
            self.seconds.clone(),
        );
        registry.register(
            "webhook_calls_waiting",
            "Calls to the webhooks of PodTransitionRules that wait because too many are in flight",
            self.waiting.clone(),
        );
        registry.register(
            "webhook_calls_in_flight",
            "Calls to the webhooks of PodTransitionRules that are in flight",
            self.in_flight.clone(),
        );
    }

    /// Sets the numbers of calls that wait and that are in flight.
    pub(super) fn slots(&self, waiting: usize, in_flight: usize) {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.in_flight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
    }

    /// Counts a call.
    pub(super) fn called(&self, rule: &WebhookRuleId, outcome: RuleWebhookOutcome) {
        self.calls.get_or_create(&self.labels(rule).with(outcome)).inc();
    }

    /// Records the duration of an answered call.
    pub(super) fn took(&self, rule: &WebhookRuleId, time: Duration) {
        self.seconds.get_or_create(&self.labels(rule)).observe(time.as_secs_f64());
    }

    /// Returns the number of calls of `rule` with this outcome.
    #[cfg(test)]
    pub(super) fn count(&self, rule: &WebhookRuleId, outcome: RuleWebhookOutcome) -> u64 {
        self.calls.get(&labels(rule).with(outcome)).map_or(0, |calls| calls.get())
    }

    /// Removes the series of `rule`, which is gone.
    pub(super) fn forget(&self, rule: &WebhookRuleId) {
        let labels = labels(rule);
        if !self.rules.remove(&labels.rule) {
            return;
        }
        for outcome in RuleWebhookOutcome::ALL {
            self.calls.remove(&labels.clone().with(outcome));
        }
        self.seconds.remove(&labels);
    }

    /// Removes all series. A replica that does not lead makes no calls.
    pub(crate) fn forget_all(&self) {
        self.rules.clear();
        self.calls.clear();
        self.seconds.clear();
    }

    fn labels(&self, rule: &WebhookRuleId) -> WebhookRuleLabels {
        let WebhookRuleLabels { rule } = labels(rule);
        WebhookRuleLabels { rule: self.rules.admit(&rule).to_owned() }
    }
}

fn labels(WebhookRuleId { namespace, object, rule, .. }: &WebhookRuleId) -> WebhookRuleLabels {
    WebhookRuleLabels { rule: format!("{namespace}/{object}/{rule}") }
}

#[cfg(test)]
mod tests {
    use podward_support::metrics_text;

    use super::*;

    fn rule(name: &str) -> WebhookRuleId {
        let (namespace, object, uid) = ("shop".to_owned(), "web".to_owned(), "u".to_owned());
        WebhookRuleId { namespace, object, uid, rule: name.to_owned() }
    }

    #[test]
    fn a_rule_that_is_gone_leaves_no_series() {
        let (metrics, mut registry) = (WebhookMetrics::default(), Registry::with_prefix("podward_rule"));
        metrics.register(&mut registry);
        for name in ["gone", "stays"] {
            RuleWebhookOutcome::ALL.into_iter().for_each(|outcome| metrics.called(&rule(name), outcome));
            metrics.took(&rule(name), Duration::from_millis(3));
        }
        let line = r#"podward_rule_webhook_calls_total{rule="shop/web/gone",outcome="timeout"} 1"#;
        assert!(metrics_text(&registry).contains(line), "{}", metrics_text(&registry));
        metrics.forget(&rule("gone"));
        let left = metrics_text(&registry);
        assert!(!left.contains("gone"), "{left}");
        assert!(
            left.contains(r#"podward_rule_webhook_call_seconds_count{rule="shop/web/stays"} 1"#),
            "{left}"
        );
        metrics.forget_all();
        assert!(!metrics_text(&registry).contains("stays"));
    }

    #[test]
    fn many_rules_are_counted_together() {
        let (metrics, mut registry) = (WebhookMetrics::default(), Registry::with_prefix("podward_rule"));
        metrics.register(&mut registry);
        let all: Vec<WebhookRuleId> = (0..MAX_RULES + 7).map(|number| rule(&format!("r{number}"))).collect();
        all.iter().for_each(|rule| metrics.called(rule, RuleWebhookOutcome::Passed));
        let line = r#"podward_rule_webhook_calls_total{rule="other",outcome="passed"} 7"#;
        assert!(metrics_text(&registry).contains(line));
        // A rule that goes makes room for another one.
        metrics.forget(&all[0]);
        metrics.called(&rule("new"), RuleWebhookOutcome::Passed);
        assert!(metrics_text(&registry).contains("shop/web/new"));
    }
}
