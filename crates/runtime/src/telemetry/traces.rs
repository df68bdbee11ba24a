//! Spans, sent to a collector by OTLP over gRPC.
//!
//! Services put spans into a bounded queue and go on. A task sends the spans, one request at a time. A collector that
//! is slow or down delays no one: the queue fills, and spans that do not fit are dropped and counted.

mod args;
mod channel;
mod error;
mod export;
mod queue;
mod span;

use std::path::PathBuf;

use opentelemetry_otlp::WithTonicConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use export::TraceLimits;
use queue::SpanMetrics;

pub use args::TraceArgs;
pub use error::TraceError;
pub use queue::Spans;
pub use span::{NewSpan, random_span_id};
// The types of a span's fields.
pub use opentelemetry::KeyValue;
pub use opentelemetry::trace::SpanKind;

/// The task that sends spans, and its queue.
#[derive(Debug, Default)]
pub struct Traces {
    spans: Spans,
    export: Option<ExportTask>,
}

#[derive(Debug)]
struct ExportTask {
    task: JoinHandle<()>,
    end: CancellationToken,
    limits: TraceLimits,
}

impl Traces {
    /// Begins to send spans of `service` if `args` name a collector, and adds its metrics to `registry` then. Must be
    /// called on the runtime. The collector need not be up.
    ///
    /// # Errors
    ///
    /// When the collector's URL is invalid, or a standard variable can't be read.
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
                Self::to(&url, args.otlp_ca.clone(), service, version, registry, TraceLimits::DEFAULT)
            }
        }
    }

    fn to(
        url: &str,
        ca: Option<PathBuf>,
        service: &'static str,
        version: &'static str,
        registry: &mut Registry,
        limits: TraceLimits,
    ) -> Result<Self, TraceError> {
        let channel = channel::lazy(url, ca, limits)?;
        let mut exporter =
            opentelemetry_otlp::SpanExporter::builder().with_tonic().with_channel(channel).build()?;
        // Together with OTEL_RESOURCE_ATTRIBUTES, which can't change these.
        let about = [
            KeyValue::new("service.namespace", "podward"),
            KeyValue::new("service.name", service),
            KeyValue::new("service.version", version),
        ];
        exporter.set_resource(&Resource::builder().with_attributes(about).build());
        let metrics = SpanMetrics::default();
        metrics.register(registry);
        let (queue, spans) = mpsc::channel(limits.queue);
        let end = CancellationToken::new();
        let task = tokio::spawn(export::run(exporter, spans, metrics.clone(), limits, end.clone()));
        Ok(Self { spans: Spans::new(queue, metrics), export: Some(ExportTask { task, end, limits }) })
    }

    /// Returns the sender of spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// Sends the remaining spans, for a few seconds at most. Spans that are queued later are dropped.
    pub async fn finish(self) {
        let Some(ExportTask { mut task, end, limits }) = self.export else { return };
        end.cancel();
        let timeout = limits.flush_timeout;
        if tokio::time::timeout(timeout, &mut task).await.is_err() {
            task.abort();
            tracing::warn!(
                "the last spans were not sent: the collector did not accept them within {timeout:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
