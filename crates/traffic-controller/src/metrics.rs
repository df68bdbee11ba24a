//! The metrics of the process.

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

/// The maximum number of values of the label `node`. Further nodes are counted together.
const MAX_NODES: usize = 100;
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
struct ReadLabels {
    read: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// All metrics of the traffic-controller.
#[derive(Debug)]
pub(crate) struct TrafficMetrics {
    answers: Family<AnswerLabels, Counter<u64, AtomicU64>>,
    prepare: Family<PartLabels, Histogram, fn() -> Histogram>,
    scrapes: Counter,
    scrape_failures: Family<NodeLabels, Counter<u64, AtomicU64>>,
    kube_proxies: Family<ReadLabels, Gauge<i64, AtomicI64>>,
    watches: Family<KindLabels, Gauge<i64, AtomicI64>>,
    objects: Family<KindLabels, Gauge<i64, AtomicI64>>,
    pub(crate) held: Gauge<i64, AtomicI64>,
    pub(crate) registered: Gauge<i64, AtomicI64>,
    nodes: Mutex<HashSet<String>>,
}

impl TrafficMetrics {
    pub(crate) fn new() -> Self {
        Self {
            answers: Family::default(),
            prepare: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 14))),
            scrapes: Counter::default(),
            scrape_failures: Family::default(),
            kube_proxies: Family::default(),
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
            "Answers to calls of the lifecycle-controller, by phase, outcome and evidence",
            self.answers.clone(),
        );
        registry.register_with_unit(
            "traffic_prepare_part",
            "Duration of the parts of PREPARE: until no slice shows the pod as ready, until the proxies have applied \
             that, until requests in flight have ended",
            Unit::Seconds,
            self.prepare.clone(),
        );
        registry.register(
            "traffic_scrapes",
            "Number of reads of the metrics of kube-proxies",
            self.scrapes.clone(),
        );
        registry.register(
            "traffic_scrape_failures",
            "Number of failed reads of the metrics of a node's kube-proxy",
            self.scrape_failures.clone(),
        );
        registry.register(
            "traffic_kube_proxies",
            "Number of nodes by how the metrics of their kube-proxy were last read: directly, by-agent, or not",
            self.kube_proxies.clone(),
        );
        registry.register(
            "traffic_watch_up",
            "1 while the watch of a kind is established",
            self.watches.clone(),
        );
        registry.register("traffic_objects", "Number of objects in the index, by kind", self.objects.clone());
        registry.register(
            "traffic_calls_held",
            "Number of calls that are held open until their answer changes",
            self.held.clone(),
        );
        registry.register(
            "traffic_registered",
            "1 if the last registration as a hook succeeded",
            self.registered.clone(),
        );
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, phase: &'static str, outcome: &'static str, evidence: &'static str) {
        self.answers.get_or_create(&AnswerLabels { phase, outcome, evidence }).inc();
    }

    /// Records the duration of a part of PREPARE.
    pub(crate) fn prepare_took(&self, part: &'static str, time: Duration) {
        self.prepare.get_or_create(&PartLabels { part }).observe(time.as_secs_f64());
    }

    /// Counts a read of the metrics of the kube-proxy on `node`.
    pub(crate) fn scraped(&self, node: &str, failed: bool) {
        self.scrapes.inc();
        if failed {
            let mut nodes = self.nodes.lock();
            let known = nodes.contains(node) || (nodes.len() < MAX_NODES && nodes.insert(node.to_owned()));
            let node = if known { node } else { OTHER_NODES };
            self.scrape_failures.get_or_create(&NodeLabels { node: node.to_owned() }).inc();
        }
    }

    /// Sets the number of nodes whose kube-proxy was last read in a way.
    pub(crate) fn set_kube_proxies(&self, read: &'static str, nodes: usize) {
        self.kube_proxies.get_or_create(&ReadLabels { read }).set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Sets whether the watch of `kind` is established.
    pub(crate) fn set_watch_up(&self, kind: &'static str, up: bool) {
        self.watches.get_or_create(&KindLabels { kind }).set(i64::from(up));
    }

    #[cfg(test)]
    pub(crate) fn is_watch_up(&self, kind: &'static str) -> bool {
        self.watches.get_or_create(&KindLabels { kind }).get() == 1
    }

    /// Sets the numbers of slices, of pods with endpoints, of Services and of nodes.
    pub(crate) fn set_sizes(&self, sizes: [usize; 4]) {
        for (kind, size) in ["EndpointSlice", "Endpoint", "Service", "Node"].into_iter().zip(sizes) {
            self.objects.get_or_create(&KindLabels { kind }).set(i64::try_from(size).unwrap_or(i64::MAX));
        }
    }
}
