//! What is counted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Past this many nodes the rest is counted together.
const MOST_NODES: usize = 100;
const OTHER_NODES: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    phase: &'static str,
    outcome: &'static str,
    evidence: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    answers: Family<AnswerLabels, Counter<u64, AtomicU64>>,
    prepare: Family<PartLabels, Histogram, fn() -> Histogram>,
    scrapes: Counter,
    scrape_failures: Family<NodeLabels, Counter<u64, AtomicU64>>,
    watches: Family<KindLabels, Gauge<i64, AtomicI64>>,
    objects: Family<KindLabels, Gauge<i64, AtomicI64>>,
    pub(crate) held: Gauge<i64, AtomicI64>,
    pub(crate) registered: Gauge<i64, AtomicI64>,
    nodes: Mutex<HashSet<String>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            answers: Family::default(),
            prepare: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 14))),
            scrapes: Counter::default(),
            scrape_failures: Family::default(),
            watches: Family::default(),
            objects: Family::default(),
            held: Gauge::default(),
            registered: Gauge::default(),
            nodes: Mutex::default(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "traffic_answers",
            "Answers to questions, by phase, outcome and evidence",
            self.answers.clone(),
        );
        registry.register_with_unit(
            "traffic_prepare_part",
            "Time that the parts of PREPARE took: until all slices showed the pod out, until the proxies had that, until requests in flight had ended",
            Unit::Seconds,
            self.prepare.clone(),
        );
        registry.register("traffic_scrapes", "Times that a kube-proxy was read", self.scrapes.clone());
        registry.register(
            "traffic_scrape_failures",
            "Times that a node's kube-proxy could not be read",
            self.scrape_failures.clone(),
        );
        registry.register("traffic_watch_up", "1 while the watch of a kind works", self.watches.clone());
        registry.register("traffic_objects", "What is kept, by kind", self.objects.clone());
        registry.register(
            "traffic_calls_held",
            "Questions that are held open because what they wait for may come at any moment",
            self.held.clone(),
        );
        registry.register(
            "traffic_registered",
            "1 when the last registration as a hook succeeded",
            self.registered.clone(),
        );
    }

    pub(crate) fn answered(&self, phase: &'static str, outcome: &'static str, evidence: &'static str) {
        self.answers.get_or_create(&AnswerLabels { phase, outcome, evidence }).inc();
    }

    pub(crate) fn prepare_took(&self, part: &'static str, time: Duration) {
        self.prepare.get_or_create(&PartLabels { part }).observe(time.as_secs_f64());
    }

    pub(crate) fn scraped(&self, node: &str, failed: bool) {
        self.scrapes.inc();
        if failed {
            let mut nodes = self.nodes.lock();
            let known = nodes.contains(node) || (nodes.len() < MOST_NODES && nodes.insert(node.to_owned()));
            let node = if known { node } else { OTHER_NODES };
            self.scrape_failures.get_or_create(&NodeLabels { node: node.to_owned() }).inc();
        }
    }

    pub(crate) fn watch(&self, kind: &'static str, up: bool) {
        self.watches.get_or_create(&KindLabels { kind }).set(i64::from(up));
    }

    #[cfg(test)]
    pub(crate) fn is_up(&self, kind: &'static str) -> bool {
        self.watches.get_or_create(&KindLabels { kind }).get() == 1
    }

    pub(crate) fn sizes(&self, sizes: [usize; 4]) {
        for (kind, size) in ["EndpointSlice", "Endpoint", "Service", "Node"].into_iter().zip(sizes) {
            self.objects.get_or_create(&KindLabels { kind }).set(i64::try_from(size).unwrap_or(i64::MAX));
        }
    }
}
