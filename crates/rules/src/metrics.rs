//! The metrics of rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::Mutex;
use podward_core::UnixNanos;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::webhook::WebhookMetrics;

/// Objects in `podward_rule_waiting_since_timestamp_seconds`. Further objects are added when pods no longer wait for
/// others.
const MAX_OBJECTS: usize = 500;

/// The outcome of the write of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum StatusWriteOutcome {
    Done,
    /// Another writer was faster.
    Lost,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusWriteLabels {
    outcome: StatusWriteOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabels {
    /// Not `namespace`, which Prometheus sets to that of the scraped pod.
    pod_namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleObjectLabels {
    /// `namespace/name`.
    object: String,
}

/// The metrics of rules. Clones share the values.
#[derive(Clone, Debug, Default)]
pub struct RuleMetrics {
    writes: Family<StatusWriteLabels, Counter<u64, AtomicU64>>,
    grants: Counter,
    waiting: Family<NamespaceLabels, Gauge<i64, AtomicI64>>,
    since: Family<RuleObjectLabels, Gauge<i64, AtomicI64>>,
    /// By namespace: the objects in `since`.
    shown: Arc<Mutex<BTreeMap<String, Vec<RuleObjectLabels>>>>,
    pub(crate) webhooks: WebhookMetrics,
}

impl RuleMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rule");
        registry.register(
            "status_writes",
            "Writes of the status of PodTransitionRules, by outcome",
            self.writes.clone(),
        );
        registry.register("grants", "Grants that PodTransitionRules gave to pods", self.grants.clone());
        registry.register("waiting_pods", "Pods that wait for a rule, by namespace", self.waiting.clone());
        registry.register(
            "waiting_since_timestamp_seconds",
            "Time of the earliest check request that the rules of an object refuse",
            self.since.clone(),
        );
        self.webhooks.register(registry);
    }

    /// Counts a write of a status.
    pub(crate) fn wrote(&self, outcome: StatusWriteOutcome) {
        self.writes.get_or_create(&StatusWriteLabels { outcome }).inc();
    }

    /// Counts `grants` new grants.
    pub(crate) fn granted(&self, grants: usize) {
        self.grants.inc_by(u64::try_from(grants).unwrap_or_default());
    }

    /// Sets the number of `pods` of `namespace` that wait, and for each object that they wait for the time of the
    /// earliest check request.
    pub(crate) fn set_waiting(&self, namespace: &str, pods: usize, since: &BTreeMap<&str, UnixNanos>) {
        let labels = NamespaceLabels { pod_namespace: namespace.to_owned() };
        self.waiting.get_or_create(&labels).set(i64::try_from(pods).unwrap_or(i64::MAX));
        let mut shown = self.shown.lock();
        let before = shown.remove(namespace).unwrap_or_default();
        let free = MAX_OBJECTS.saturating_sub(shown.values().map(Vec::len).sum());
        let labels = |name: &str| RuleObjectLabels { object: format!("{namespace}/{name}") };
        let now: Vec<RuleObjectLabels> = since.keys().take(free).map(|name| labels(name)).collect();
        for (object, since) in now.iter().zip(since.values()) {
            self.since.get_or_create(object).set(since.0.div_euclid(1_000_000_000));
        }
        for object in before.iter().filter(|object| !now.contains(object)) {
            self.since.remove(object);
        }
        if !now.is_empty() {
            shown.insert(namespace.to_owned(), now);
        }
    }

    /// Removes the series of a namespace without PodTransitionRules.
    pub(crate) fn forget_namespace(&self, namespace: &str) {
        self.waiting.remove(&NamespaceLabels { pod_namespace: namespace.to_owned() });
    }

    /// Removes all series. A replica that does not lead knows nothing of waiting pods.
    pub fn forget(&self) {
        self.waiting.clear();
        self.since.clear();
        self.shown.lock().clear();
        self.webhooks.forget_all();
    }
}

#[cfg(test)]
mod tests {
    use podward_support::metrics_text;

    use super::*;

    #[test]
    fn an_object_is_shown_while_pods_wait_for_it() {
        let (metrics, mut registry) = (RuleMetrics::default(), Registry::with_prefix("podward"));
        metrics.register(&mut registry);
        let text = || metrics_text(&registry);
        let line =
            |object: &str| format!("podward_rule_waiting_since_timestamp_seconds{{object=\"{object}\"}} 7");
        let at = UnixNanos(7_900_000_000);
        metrics.set_waiting("shop", 3, &[("web", at), ("api", at)].into());
        metrics.set_waiting("bank", 1, &[("web", at)].into());
        assert!(["shop/web", "shop/api", "bank/web"].iter().all(|object| text().contains(&line(object))));
        metrics.set_waiting("shop", 1, &[("api", at)].into());
        assert!(!text().contains("shop/web") && text().contains(&line("shop/api")), "{}", text());
        metrics.set_waiting("shop", 0, &BTreeMap::new());
        assert!(!text().contains("shop/api") && text().contains(&line("bank/web")), "{}", text());
        metrics.forget();
        assert!(!text().contains("bank"), "{}", text());
    }
}
