//! Figures of rules.

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

/// Objects for which pods wait that are shown at once; those that come after are shown when others are not waited for any more.
const MOST_OBJECTS: usize = 500;

/// How the write of a status ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Ended {
    Done,
    /// Somebody else was faster.
    Lost,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNamespace {
    namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfObject {
    /// With its namespace.
    object: String,
}

/// Clones share the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleMetrics {
    writes: Family<Outcome, Counter<u64, AtomicU64>>,
    grants: Counter,
    waiting: Family<OfNamespace, Gauge<i64, AtomicI64>>,
    since: Family<OfObject, Gauge<i64, AtomicI64>>,
    /// By namespace: the objects that `since` has.
    shown: Arc<Mutex<BTreeMap<String, Vec<OfObject>>>>,
    pub(super) webhooks: WebhookMetrics,
}

impl RuleMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rule");
        registry.register(
            "status_writes",
            "Writes of the status of PodTransitionRules, by outcome",
            self.writes.clone(),
        );
        registry.register(
            "grants",
            "Times that a pod was given room in the budgets of a rule object",
            self.grants.clone(),
        );
        registry.register("waiting_pods", "Pods that wait for a rule, by namespace", self.waiting.clone());
        registry.register(
            "waiting_since_timestamp_seconds",
            "When the pod that has waited longest for the rules of an object began to ask",
            self.since.clone(),
        );
        self.webhooks.register(registry);
    }

    pub(super) fn wrote(&self, outcome: Ended) {
        self.writes.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn granted(&self, grants: usize) {
        self.grants.inc_by(u64::try_from(grants).unwrap_or_default());
    }

    /// So many `pods` of `namespace` wait; by the name of the object that they wait for, since when the first of them has asked.
    pub(super) fn waits(&self, namespace: &str, pods: usize, since: &BTreeMap<&str, UnixNanos>) {
        let labels = OfNamespace { namespace: namespace.to_owned() };
        self.waiting.get_or_create(&labels).set(i64::try_from(pods).unwrap_or(i64::MAX));
        let mut shown = self.shown.lock();
        let before = shown.remove(namespace).unwrap_or_default();
        let room = MOST_OBJECTS.saturating_sub(shown.values().map(Vec::len).sum());
        let labels = |name: &str| OfObject { object: format!("{namespace}/{name}") };
        let now: Vec<OfObject> = since.keys().take(room).map(|name| labels(name)).collect();
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

    /// The namespace has no rule object any more.
    pub(super) fn waits_no_more(&self, namespace: &str) {
        self.waiting.remove(&OfNamespace { namespace: namespace.to_owned() });
    }

    /// A replica that doesn't lead knows nothing of pods that wait.
    pub(crate) fn forget(&self) {
        self.waiting.clear();
        self.since.clear();
        self.shown.lock().clear();
        self.webhooks.forget_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_shown_while_pods_wait_for_it() {
        let (metrics, mut registry) = (RuleMetrics::default(), Registry::with_prefix("podward"));
        metrics.register(&mut registry);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let line =
            |object: &str| format!("podward_rule_waiting_since_timestamp_seconds{{object=\"{object}\"}} 7");
        let at = UnixNanos(7_900_000_000);
        metrics.waits("shop", 3, &[("web", at), ("api", at)].into());
        metrics.waits("bank", 1, &[("web", at)].into());
        assert!(["shop/web", "shop/api", "bank/web"].iter().all(|object| text().contains(&line(object))));
        metrics.waits("shop", 1, &[("api", at)].into());
        assert!(!text().contains("shop/web") && text().contains(&line("shop/api")), "{}", text());
        metrics.waits("shop", 0, &BTreeMap::new());
        assert!(!text().contains("shop/api") && text().contains(&line("bank/web")), "{}", text());
        metrics.forget();
        assert!(!text().contains("bank"), "{}", text());
    }
}
