//! Spans, sent to a collector by OTLP over gRPC.
//!
//! Whoever has a span to tell of puts it into a bounded queue and goes on; a task sends what is there, one request at a time. A collector
//! that is slow or dead costs nobody anything: the queue fills, and what doesn't fit is dropped and counted.

mod channel;
mod export;
mod span;

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Args;
use opentelemetry_otlp::{ExporterBuildError, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::grpc_client::InvalidEndpoint;

pub use span::{NewSpan, random_span_id};
// What spans are made of.
pub use opentelemetry::KeyValue;
pub use opentelemetry::trace::SpanKind;

/// Arguments of tracing.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceArgs {
    /// Collector that gets traces by OTLP over gRPC, as in http://otel-collector.observability:4317; when not given:
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, and without these there are no traces
    #[arg(long, env = "PODWARD_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// PEM file with the authorities that the certificate of an https collector must be signed by, read again when it changes; the
    /// system's when not given
    #[arg(long, env = "PODWARD_OTLP_CA", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,
}

impl TraceArgs {
    /// The collector, by argument or by the variables that other programs read too. An empty one is none.
    fn endpoint(&self) -> Option<String> {
        let variables = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let given = self.otlp_endpoint.clone().into_iter();
        let found = given.chain(variables.into_iter().filter_map(|variable| env::var(variable).ok()));
        found.map(|url| url.trim_end_matches('/').to_owned()).find(|url| !url.is_empty())
    }
}

/// Traces can't be sent as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The collector's URL is none.
    #[error("traces can't be sent to {url:?}: {problem}; write for example http://otel-collector:4317")]
    Endpoint {
        /// The URL.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The same of one with TLS.
    #[error("traces can't be sent: {0}")]
    Tls(#[from] InvalidEndpoint),
    /// The rest, which is given in variables.
    #[error("traces can't be sent; look at the variables OTEL_EXPORTER_OTLP_...: {0}")]
    Exporter(#[from] ExporterBuildError),
}

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Spans that wait. An operation gives about ten.
    queue: usize,
    /// Spans sent in one request.
    batch: usize,
    /// Time for one request, with all attempts.
    deadline: Duration,
    /// Time to send what is left when the process ends.
    flush: Duration,
}

const LIMITS: Limits =
    Limits { queue: 4096, batch: 512, deadline: Duration::from_secs(10), flush: Duration::from_secs(3) };

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: &'static str,
}

/// There was no room.
const FULL: &str = "full";
/// The collector was not reached, or didn't take them.
const FAILED: &str = "failed";

#[derive(Clone, Debug, Default)]
struct Counts {
    sent: Counter<u64, AtomicU64>,
    dropped: Family<DropLabels, Counter<u64, AtomicU64>>,
}

impl Counts {
    fn register(&self, registry: &mut Registry) {
        registry.register("trace_spans_sent", "Spans that the collector has taken", self.sent.clone());
        registry.register(
            "trace_spans_dropped",
            "Spans that were not sent, because too many waited or the collector did not take them",
            self.dropped.clone(),
        );
    }

    fn drop(&self, reason: &'static str, spans: usize) {
        self.dropped.get_or_create(&DropLabels { reason }).inc_by(spans as u64);
    }
}

/// Where spans go. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<Queue>>);

#[derive(Debug)]
struct Queue {
    spans: mpsc::Sender<SpanData>,
    counts: Counts,
}

impl Spans {
    /// Nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether somebody wants them. If not, none should be made.
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Queues a span. Never waits.
    pub fn send(&self, span: NewSpan) {
        if let Some(queue) = &self.0
            && queue.spans.try_send(span.into()).is_err()
        {
            queue.counts.drop(FULL, 1);
        }
    }
}

/// The sending of spans.
#[derive(Debug, Default)]
pub struct Traces {
    spans: Spans,
    sender: Option<(JoinHandle<()>, CancellationToken, Duration)>,
}

impl Traces {
    /// Begins to send spans of `service` if `args` ask for it, and adds its metrics to `registry` then. To be called on the runtime. The
    /// collector need not be there.
    ///
    /// # Errors
    /// When the collector's URL is none, or the standard's variables can't be read.
    pub fn start(
        args: &TraceArgs,
        service: &'static str,
        version: &'static str,
        registry: &mut Registry,
    ) -> Result<Self, TraceError> {
        match args.endpoint() {
            None => Ok(Self::default()),
            Some(url) => {
                tracing::info!(collector = url, "traces are sent");
                Self::to(&url, args.otlp_ca.clone(), service, version, registry, LIMITS)
            }
        }
    }

    fn to(
        url: &str,
        ca: Option<PathBuf>,
        service: &'static str,
        version: &'static str,
        registry: &mut Registry,
        limits: Limits,
    ) -> Result<Self, TraceError> {
        let channel = channel::lazy(url, ca)?;
        let mut exporter =
            opentelemetry_otlp::SpanExporter::builder().with_tonic().with_channel(channel).build()?;
        // With OTEL_RESOURCE_ATTRIBUTES; who we are is not among what they may say.
        let about = [
            KeyValue::new("service.namespace", "podward"),
            KeyValue::new("service.name", service),
            KeyValue::new("service.version", version),
        ];
        exporter.set_resource(&Resource::builder().with_attributes(about).build());
        let counts = Counts::default();
        counts.register(registry);
        let (queue, spans) = mpsc::channel(limits.queue);
        let end = CancellationToken::new();
        let sender = tokio::spawn(export::run(exporter, spans, counts.clone(), limits, end.clone()));
        let spans = Spans(Some(Arc::new(Queue { spans: queue, counts })));
        Ok(Self { spans, sender: Some((sender, end, limits.flush)) })
    }

    /// Where to put spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// Sends what is left, for a few seconds at most. What comes later is dropped.
    pub async fn finish(self) {
        let Some((mut sender, end, patience)) = self.sender else { return };
        end.cancel();
        if tokio::time::timeout(patience, &mut sender).await.is_err() {
            sender.abort();
            tracing::warn!(
                "the last spans were not sent: the collector did not take them within {patience:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
