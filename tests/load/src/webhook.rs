//! Measures the webhooks alone: the cost of a review of a write to a pod for the mutating webhook, and of a delete
//! for the validating webhook.
//!
//! The webhook is a separate process, bound to one CPU. The load comes from this process over loopback, bound to
//! another CPU, with HTTPS and HTTP/1.1 keep-alive, as from the API server.
//!
//! CPU time is the important figure. The kernel accounts it per process, so that it does not depend on other load on
//! the machine. Requests per second and latency do.

mod client;
mod cluster;
mod deletes;
mod flood;
mod replicas;
mod review;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

pub use deletes::{DeleteReport, run_deletes};
pub use flood::{FloodReport, ReviewLatency, run_flood};
pub use replicas::{PhaseReport, ReplicasReport, run_replicas};
pub use review::{DELETED_POD_BYTES, REVIEW_BYTES, begin, delete_granted, delete_held, unchanged};

use client::{ExpectedAnswer, WebhookLoad};
use server::WebhookProcess;

/// The request rate per second for which the required latency must hold.
pub const AIM_HALF: f64 = 2_500.0;

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The program of the webhook, built with optimisation.
    pub program: PathBuf,
    /// The duration of each measurement.
    pub each: Duration,
    /// The number of connections at saturation, which is the number of concurrent requests.
    pub connections: usize,
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebhookReport {
    /// The size of a review, in bytes.
    pub review_bytes: usize,
    /// The CPU time per review that is answered with a patch and logged, in milliseconds.
    pub cpu_ms_per_request: f64,
    /// The part of it that the kernel used for sockets, in milliseconds.
    pub system_ms_per_request: f64,
    /// The CPU time per review that needs no change, in milliseconds.
    pub unchanged_cpu_ms_per_request: f64,
    /// The requests per second that one CPU answers with a patch.
    pub requests_per_second: f64,
    /// The request rate per second at which latency was measured: half of the maximum.
    pub half_load_per_second: f64,
    /// The median latency at half load, from the time at which a request was due, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the latency at half load, in milliseconds.
    pub p99_ms: f64,
    /// The 99th percentile at [`AIM_HALF`] requests per second, half of the required rate, in milliseconds.
    pub p99_at_aim_ms: f64,
    /// The memory at the end, in MiB.
    pub rss_mib: f64,
    /// The peak memory, in MiB.
    pub peak_rss_mib: f64,
}

impl WebhookReport {
    /// Returns the lines of a table: figure, aim, result.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let row = |what: &str, aim: &str, found: String| [what.to_owned(), aim.to_owned(), found];
        vec![
            row("CPU per request", "0.16 ms", format!("{:.3} ms", self.cpu_ms_per_request)),
            row("of that in the kernel", "", format!("{:.3} ms", self.system_ms_per_request)),
            row(
                "CPU per request without a patch",
                "",
                format!("{:.3} ms", self.unchanged_cpu_ms_per_request),
            ),
            row("requests/s on one core", "5,000", format!("{:.0}", self.requests_per_second)),
            row("p50 at half load", "", format!("{:.2} ms", self.p50_ms)),
            row("p99 at half load", "5 ms", format!("{:.2} ms", self.p99_ms)),
            row("p99 at 2,500 requests/s", "5 ms", format!("{:.2} ms", self.p99_at_aim_ms)),
            row("RSS", "20 MiB", format!("{:.1} MiB (peak {:.1})", self.rss_mib, self.peak_rss_mib)),
        ]
    }
}

/// Measures the webhook. Takes four times [`WebhookOptions::each`] and some seconds.
///
/// # Errors
/// Fails if the webhook cannot be started, or gives a wrong answer to a review.
pub async fn run(options: WebhookOptions) -> Result<WebhookReport> {
    on_a_thread(async move || measure(&options).await).await
}

/// Runs `work` on a runtime and a thread of its own, because it is bound to a CPU and spins until a request is due.
async fn on_a_thread<T, W>(work: W) -> Result<T>
where
    T: Send + 'static,
    W: AsyncFnOnce() -> Result<T> + Send + 'static,
{
    let run = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work())
    });
    tokio::task::spawn_blocking(move || run.join())
        .await?
        .map_err(|_| anyhow::anyhow!("the load generator panicked"))?
}

/// Binds this thread to a CPU, and returns another CPU for the webhook.
fn bind() -> Result<usize> {
    let (server_cpu, client_cpu) = cpus()?;
    let mut only = CpuSet::new();
    only.set(client_cpu)?;
    sched_setaffinity(Pid::from_raw(0), &only).context("bind the load generator to a CPU")?;
    Ok(server_cpu)
}

async fn measure(options: &WebhookOptions) -> Result<WebhookReport> {
    let server_cpu = bind()?;
    let webhook = WebhookProcess::start(&options.program, server_cpu).await?;
    let patched = WebhookLoad::new(&webhook, "/mutate?timeout=2s", begin()?, ExpectedAnswer::Patched);
    let unchanged = WebhookLoad::new(&webhook, "/mutate?timeout=2s", unchanged()?, ExpectedAnswer::Allowed);

    // In a process that runs for weeks, connections, caches and branch predictors are warm.
    patched.saturate(options.connections, options.each / 10).await?;
    let before = webhook.cpu()?;
    let saturated = patched.saturate(options.connections, options.each).await?;
    let cpu = webhook.cpu()? - before;
    let before = webhook.cpu()?;
    let idle_reviews = unchanged.saturate(options.connections, options.each).await?;
    let unchanged_cpu = webhook.cpu()? - before;
    let half_load = saturated.per_second() / 2.0;
    let mut latency = patched.at_rate(options.connections, half_load, options.each).await?;
    let mut aim_latency = patched.at_rate(options.connections, AIM_HALF, options.each).await?;
    let memory = webhook.memory()?;
    webhook.stop().await?;

    Ok(WebhookReport {
        review_bytes: REVIEW_BYTES,
        cpu_ms_per_request: per_request_ms(cpu.user + cpu.system, saturated.requests)?,
        system_ms_per_request: per_request_ms(cpu.system, saturated.requests)?,
        unchanged_cpu_ms_per_request: per_request_ms(
            unchanged_cpu.user + unchanged_cpu.system,
            idle_reviews.requests,
        )?,
        requests_per_second: saturated.per_second(),
        half_load_per_second: half_load,
        p50_ms: percentile_ms(&mut latency, 50),
        p99_ms: percentile_ms(&mut latency, 99),
        p99_at_aim_ms: percentile_ms(&mut aim_latency, 99),
        rss_mib: memory.now_mib,
        peak_rss_mib: memory.peak_mib,
    })
}

/// Returns a CPU for the webhook and another for the load, from those that this process may use.
fn cpus() -> Result<(usize, usize)> {
    let allowed =
        nix::sched::sched_getaffinity(Pid::from_raw(0)).context("list the CPUs that may be used")?;
    let mut usable = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let (first, second) = (usable.next(), usable.next());
    let first = first.context("no CPU may be used")?;
    Ok((first, second.context("two CPUs are needed: one for the webhook, one for the load")?))
}

fn per_request_ms(cpu: Duration, requests: usize) -> Result<f64> {
    ensure!(requests > 0, "no request was answered");
    #[allow(clippy::cast_precision_loss)]
    Ok(cpu.as_secs_f64() * 1000.0 / requests as f64)
}

fn percentile_ms(latencies: &mut [Duration], percent: usize) -> f64 {
    latencies.sort_unstable();
    let at = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
    latencies.get(at).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1000.0)
}
