//! Measures reviews while one of two replicas of the webhook ends.
//!
//! Both replicas share a CPU, and the load has another. There are three phases, each with two new replicas: nothing
//! happens, one replica gets SIGTERM, one gets SIGKILL.

mod api_server;
mod service;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::review::begin;
use super::{WebhookOptions, bind, on_a_thread, percentile_ms};
use api_server::{ApiServer, ReviewOutcome};
use service::WebhookService;

/// Reviews each second.
const PER_SECOND: u32 = 1_000;
/// The load before each phase, which is not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// The time from the signal in which latency is measured a second time.
const AFTERMATH: Duration = Duration::from_secs(1);
/// The required latency of a review, 99th percentile, in milliseconds.
const AIM_P99_MS: f64 = 50.0;

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicasReport {
    /// Reviews each second, to both replicas together.
    pub per_second: u32,
    /// Both replicas serve.
    pub quiet: PhaseReport,
    /// One replica gets SIGTERM.
    pub terminated: PhaseReport,
    /// One replica gets SIGKILL.
    pub killed: PhaseReport,
}

/// The reviews of a phase. Latency is that of the answered ones, from the time at which each was due.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The number of reviews.
    pub reviews: usize,
    /// Of these, reviews that failed.
    pub failed: usize,
    /// The failed reviews by their reason.
    pub failures: BTreeMap<String, usize>,
    /// Connections that were made meanwhile.
    pub connections: usize,
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Maximum, in milliseconds.
    pub max_ms: f64,
    /// 99th percentile of the reviews of one second, from the signal on, in milliseconds.
    pub p99_after_signal_ms: f64,
}

impl ReplicasReport {
    /// Returns the lines of a table: figure, aim, result.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let phases = [("quiet", &self.quiet), ("SIGTERM", &self.terminated), ("SIGKILL", &self.killed)];
        let rows = |(what, phase): (&str, &PhaseReport)| {
            let latency = format!("{:.1} ms (maximum {:.1})", phase.p99_ms, phase.max_ms);
            [
                [format!("p99 of a review, {what}"), format!("{AIM_P99_MS} ms"), latency],
                [format!("failed, {what}"), "0".to_owned(), format!("{} of {}", phase.failed, phase.reviews)],
            ]
        };
        phases.into_iter().flat_map(rows).collect()
    }
}

/// Measures two replicas. Takes three times [`WebhookOptions::each`] and some seconds.
///
/// # Errors
/// Fails if a replica cannot be started, or does not end after SIGTERM.
pub async fn run_replicas(options: WebhookOptions) -> Result<ReplicasReport> {
    on_a_thread(async move || measure(&options).await).await
}

async fn measure(options: &WebhookOptions) -> Result<ReplicasReport> {
    let cpu = bind()?;
    Ok(ReplicasReport {
        per_second: PER_SECOND,
        quiet: phase(options, cpu, None).await?,
        terminated: phase(options, cpu, Some(Signal::SIGTERM)).await?,
        killed: phase(options, cpu, Some(Signal::SIGKILL)).await?,
    })
}

/// Starts two replicas on `cpu`, and sends reviews for the time of a phase. One of the replicas gets `signal` before the
/// middle, so that the end of its drain is measured too.
async fn phase(options: &WebhookOptions, cpu: usize, signal: Option<Signal>) -> Result<PhaseReport> {
    let service = WebhookService::start(&options.program, cpu).await?;
    let api_server = ApiServer::start(&service, begin()?, options.connections).await?;
    api_server.reviews(PER_SECOND, Instant::now(), WARM_UP).await;
    let connections = service.connections();
    let start = Instant::now();
    let signal_at = start + options.each * 2 / 5;
    let end_one = async {
        tokio::time::sleep_until(signal_at.into()).await;
        match signal {
            Some(signal) => service.end_one(signal).await,
            None => Ok(()),
        }
    };
    let load = api_server.reviews(PER_SECOND, start, options.each);
    let (outcomes, ended) = tokio::join!(load, end_one);
    ended?;
    let connections = service.connections() - connections;
    drop(api_server);
    service.stop(signal).await?;
    report(&outcomes, signal_at, connections)
}

fn report(outcomes: &[ReviewOutcome], signal_at: Instant, connections: usize) -> Result<PhaseReport> {
    let (mut latencies, mut after, mut failures) = (Vec::new(), Vec::new(), BTreeMap::new());
    for outcome in outcomes {
        match &outcome.result {
            Ok(latency) => {
                latencies.push(*latency);
                if (signal_at..signal_at + AFTERMATH).contains(&outcome.due) {
                    after.push(*latency);
                }
            }
            Err(error) => {
                let count = failures.entry(error.to_string()).or_insert(0);
                if *count == 0 {
                    eprintln!("a review failed: {error:#}");
                }
                *count += 1;
            }
        }
    }
    ensure!(!latencies.is_empty(), "no review was answered");
    Ok(PhaseReport {
        reviews: outcomes.len(),
        failed: failures.values().sum(),
        failures,
        connections,
        p50_ms: percentile_ms(&mut latencies, 50),
        p99_ms: percentile_ms(&mut latencies, 99),
        max_ms: percentile_ms(&mut latencies, 100),
        p99_after_signal_ms: percentile_ms(&mut after, 99),
    })
}
