//! The task that sends spans.

use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::queue::SpanMetrics;
use crate::grpc_client::{KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};

/// Failures are logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Limits on the spans that are kept, and on the time to send them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceLimits {
    /// Spans that may wait. An operation has about ten.
    pub(super) queue: usize,
    /// Spans in one request.
    pub(super) batch: usize,
    /// Timeout of one request, with all its attempts.
    pub(super) request_timeout: Duration,
    /// Timeout for the remaining spans when the process ends.
    pub(super) flush_timeout: Duration,
    /// A connection without TLS is checked when nothing has arrived for this time, while a request waits.
    pub(super) keep_alive_interval: Duration,
    /// Timeout of such a check. The connection is closed then.
    pub(super) keep_alive_timeout: Duration,
}

impl TraceLimits {
    pub(super) const DEFAULT: Self = Self {
        queue: 4096,
        batch: 512,
        request_timeout: Duration::from_secs(10),
        flush_timeout: Duration::from_secs(3),
        keep_alive_interval: KEEP_ALIVE_INTERVAL,
        keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
    };
}

/// Sends spans as they come. The spans that come during a request go with the next one. Ends after `end`, when none is
/// left.
pub(super) async fn run(
    exporter: impl SpanExporter,
    mut spans: mpsc::Receiver<SpanData>,
    metrics: SpanMetrics,
    limits: TraceLimits,
    end: CancellationToken,
) {
    let mut failures = ExportFailures::default();
    let mut batch = Vec::new();
    loop {
        let is_open = !spans.is_closed();
        tokio::select! {
            () = end.cancelled(), if is_open => {
                spans.close();
                continue;
            }
            count = spans.recv_many(&mut batch, limits.batch) => if count == 0 { return },
        }
        let count = batch.len();
        let export = exporter.export(std::mem::take(&mut batch));
        let problem = match tokio::time::timeout(limits.request_timeout, export).await {
            Ok(Ok(())) => {
                metrics.sent.inc_by(count as u64);
                failures.recovered();
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", limits.request_timeout),
        };
        metrics.failed(count);
        failures.log(count, &problem);
    }
}

/// The spans that were dropped since the last log message.
#[derive(Debug, Default)]
struct ExportFailures {
    logged: Option<Instant>,
    spans: usize,
}

impl ExportFailures {
    fn log(&mut self, spans: usize, problem: &str) {
        self.spans += spans;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            tracing::warn!(
                spans = self.spans,
                "spans were dropped, the collector did not accept them (--otlp-endpoint): {problem}"
            );
            *self = Self { logged: Some(Instant::now()), spans: 0 };
        }
    }

    fn recovered(&mut self) {
        if self.logged.is_some() {
            tracing::info!(spans_dropped_meanwhile = self.spans, "the collector accepts spans again");
            *self = Self::default();
        }
    }
}
