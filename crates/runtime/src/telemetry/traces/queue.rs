//! The queue of spans that wait to be sent.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use opentelemetry_sdk::trace::SpanData;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use super::span::NewSpan;

/// The reason of a dropped span: the queue was full.
const FULL: &str = "full";
/// The reason of a dropped span: the collector was not reached, or did not accept it.
const FAILED: &str = "failed";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: &'static str,
}

/// Metrics of sent and dropped spans. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanMetrics {
    pub(super) sent: Counter<u64, AtomicU64>,
    dropped: Family<DropLabels, Counter<u64, AtomicU64>>,
}

impl SpanMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("trace_spans_sent", "Spans that the collector has accepted", self.sent.clone());
        registry.register(
            "trace_spans_dropped",
            "Spans that were not sent, because too many waited (full) or the collector did not accept them (failed)",
            self.dropped.clone(),
        );
    }

    /// Counts spans that could not be sent.
    pub(super) fn failed(&self, spans: usize) {
        self.dropped(FAILED, spans);
    }

    fn dropped(&self, reason: &'static str, spans: usize) {
        self.dropped.get_or_create(&DropLabels { reason }).inc_by(spans as u64);
    }
}

/// The sender of spans. Clones send to the same queue.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<SpanQueue>>);

#[derive(Debug)]
struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    metrics: SpanMetrics,
}

impl Spans {
    pub(super) fn new(spans: mpsc::Sender<SpanData>, metrics: SpanMetrics) -> Self {
        Self(Some(Arc::new(SpanQueue { spans, metrics })))
    }

    /// Returns a sender that drops all spans.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// True if spans are sent to a collector. If not, callers need not create any.
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Queues a span. Never waits: a span that does not fit is dropped and counted.
    pub fn send(&self, span: NewSpan) {
        if let Some(queue) = &self.0
            && queue.spans.try_send(span.into()).is_err()
        {
            queue.metrics.dropped(FULL, 1);
        }
    }
}
