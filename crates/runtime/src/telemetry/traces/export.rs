//! The task that sends.

use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Counts, FAILED, Limits};

/// How often at most it is told that spans don't arrive.
const TOLD: Duration = Duration::from_secs(60);

/// Sends spans as they come: what comes while a request is under way goes with the next. Ends after `end`, when none is left.
pub(super) async fn run(
    exporter: impl SpanExporter,
    mut spans: mpsc::Receiver<SpanData>,
    counts: Counts,
    limits: Limits,
    end: CancellationToken,
) {
    let mut faults = Faults::default();
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
        let sent = tokio::time::timeout(limits.deadline, exporter.export(std::mem::take(&mut batch))).await;
        let problem = match sent {
            Ok(Ok(())) => {
                counts.sent.inc_by(count as u64);
                faults.over();
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", limits.deadline),
        };
        counts.drop(FAILED, count);
        faults.tell(count, &problem);
    }
}

/// What went wrong since it was last told.
#[derive(Debug, Default)]
struct Faults {
    told: Option<Instant>,
    spans: usize,
}

impl Faults {
    fn tell(&mut self, spans: usize, problem: &str) {
        self.spans += spans;
        if self.told.is_none_or(|told| told.elapsed() >= TOLD) {
            tracing::warn!(
                spans = self.spans,
                "spans were dropped, the collector did not take them (--otlp-endpoint): {problem}"
            );
            *self = Faults { told: Some(Instant::now()), spans: 0 };
        }
    }

    fn over(&mut self) {
        if self.told.is_some() {
            tracing::info!(spans_dropped_meanwhile = self.spans, "the collector takes spans again");
            *self = Faults::default();
        }
    }
}
