//! Measures reviews on new connections while many clients without the right path hold connections to the webhook.

mod clients;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::client::{ExpectedAnswer, WebhookLoad};
use super::review::unchanged;
use super::server::WebhookProcess;
use super::{WebhookOptions, bind, on_a_thread, percentile_ms};
use clients::{Flood, FloodSource};

/// Clients that connect and send no request.
const IDLE: usize = 5_000;
/// Clients that send a handshake, a head or a body slowly.
const SLOW: usize = 200;
/// The time between two reviews.
const REVIEW_INTERVAL: Duration = Duration::from_millis(20);
/// The required latency of a review on a new connection, 99th percentile, in milliseconds.
const AIM_P99_MS: f64 = 50.0;
/// The memory limit of a webhook in the chart, in MiB.
const AIM_MIB: f64 = 256.0;
/// The time until the clients that the webhook closes connect again as often as they are closed.
const SETTLE: Duration = Duration::from_secs(12);

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloodReport {
    /// Idle clients.
    pub idle: usize,
    /// Slow clients.
    pub slow: usize,
    /// Without other clients.
    pub alone: ReviewLatency,
    /// The other clients have fifty other addresses.
    pub other_addresses: ReviewLatency,
    /// The other clients have the address of the API server.
    pub same_address: ReviewLatency,
    /// The peak memory, in MiB.
    pub peak_rss_mib: f64,
}

/// Reviews, each on a new connection: from connecting to the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReviewLatency {
    /// The number of reviews.
    pub reviews: usize,
    /// Of these, reviews without an answer.
    pub failed: usize,
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Maximum, in milliseconds.
    pub max_ms: f64,
    /// TLS handshakes of the other clients in each second.
    pub handshakes_per_second: f64,
    /// CPU time of the webhook in each second, in milliseconds.
    pub cpu_ms_per_second: f64,
}

impl FloodReport {
    /// Returns the lines of a table: figure, aim, result.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let latency = |what: &str, at: &ReviewLatency| {
            let found = format!("{:.1} ms (median {:.1}, failed {})", at.p99_ms, at.p50_ms, at.failed);
            [format!("p99 of a review, {what}"), format!("{AIM_P99_MS} ms"), found]
        };
        vec![
            latency("alone", &self.alone),
            latency("other addresses", &self.other_addresses),
            latency("same address", &self.same_address),
            ["peak RSS".to_owned(), format!("{AIM_MIB} MiB"), format!("{:.1} MiB", self.peak_rss_mib)],
        ]
    }
}

/// Measures the webhook. Takes three times [`WebhookOptions::each`] and a minute.
///
/// # Errors
/// Fails if the webhook cannot be started, or if too few files may be open.
pub async fn run_flood(options: WebhookOptions) -> Result<FloodReport> {
    raise_file_limit()?;
    on_a_thread(async move || measure(&options).await).await
}

async fn measure(options: &WebhookOptions) -> Result<FloodReport> {
    let server_cpu = bind()?;
    let webhook = WebhookProcess::start(&options.program, server_cpu).await?;
    let load = WebhookLoad::new(&webhook, "/mutate?timeout=2s", unchanged()?, ExpectedAnswer::Allowed);
    let alone = reviews(&webhook, &load, options.each, None).await?;
    let mut reports = Vec::new();
    for source in [FloodSource::OtherAddresses, FloodSource::SameAddress] {
        let flood = Flood::start(webhook.target(), source, IDLE, SLOW)?;
        flood.until_connected().await?;
        tokio::time::sleep(SETTLE).await;
        reports.push(reviews(&webhook, &load, options.each, Some(&flood)).await?);
        flood.stop().await?;
    }
    let memory = webhook.memory()?;
    webhook.stop().await?;
    let same_address = reports.pop().context("no report")?;
    let other_addresses = reports.pop().context("no report")?;
    Ok(FloodReport {
        idle: IDLE,
        slow: SLOW,
        alone,
        other_addresses,
        same_address,
        peak_rss_mib: memory.peak_mib,
    })
}

/// Sends a review on a new connection every [`REVIEW_INTERVAL`] for the time `each`.
async fn reviews(
    webhook: &WebhookProcess,
    load: &WebhookLoad<'_>,
    each: Duration,
    flood: Option<&Flood>,
) -> Result<ReviewLatency> {
    let handshakes = || flood.map_or(0, Flood::handshakes);
    let (cpu, handshakes_before, start) = (webhook.cpu()?, handshakes(), Instant::now());
    let (mut latencies, mut failed, mut due) = (Vec::new(), 0, start);
    while start.elapsed() < each {
        due += REVIEW_INTERVAL;
        tokio::time::sleep_until(due.into()).await;
        let begun = Instant::now();
        match load.once().await {
            Ok(()) => latencies.push(begun.elapsed()),
            Err(error) => {
                eprintln!("a review failed: {error:#}");
                failed += 1;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = webhook.cpu()? - cpu;
    #[allow(clippy::cast_precision_loss)]
    let handshakes_per_second = (handshakes() - handshakes_before) as f64 / seconds;
    ensure!(!latencies.is_empty(), "no review was answered");
    Ok(ReviewLatency {
        reviews: latencies.len() + failed,
        failed,
        p50_ms: percentile_ms(&mut latencies, 50),
        p99_ms: percentile_ms(&mut latencies, 99),
        max_ms: percentile_ms(&mut latencies, 100),
        handshakes_per_second,
        cpu_ms_per_second: (cpu.user + cpu.system).as_secs_f64() * 1000.0 / seconds,
    })
}

fn raise_file_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    ensure!(hard > 8192, "only {hard} files may be open (ulimit -Hn), and the clients need more than 8192");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")
}
