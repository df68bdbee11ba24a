//! Measures the validating webhook alone: the cost of a delete of a pod that is held or allowed.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::client::{ExpectedAnswer, WebhookLoad};
use super::review::{DELETED_POD_BYTES, delete_granted, delete_held};
use super::server::WebhookProcess;
use super::{WebhookOptions, bind, on_a_thread, per_request_ms, percentile_ms};

/// The request rate per second for which the required latency must hold: half of the required rate.
const AIM_HALF: f64 = 4_000.0;

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeleteReport {
    /// The size of the pod in a review, in bytes.
    pub pod_bytes: usize,
    /// The CPU time per delete that is held, with the deletion request on the pod already, in milliseconds.
    pub held_cpu_ms_per_request: f64,
    /// The part of it that the kernel used for sockets, in milliseconds.
    pub held_system_ms_per_request: f64,
    /// The requests per second that one CPU answers.
    pub held_per_second: f64,
    /// The CPU time per delete that is allowed because no consumer uses the pod, in milliseconds.
    pub granted_cpu_ms_per_request: f64,
    /// The requests per second that one CPU answers.
    pub granted_per_second: f64,
    /// The median latency of held deletes at half of the maximum rate, from the time at which a request was due, in
    /// milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of it, in milliseconds.
    pub p99_ms: f64,
    /// The 99th percentile at 4,000 requests per second, in milliseconds.
    pub p99_at_aim_ms: f64,
    /// The memory at the end, in MiB.
    pub rss_mib: f64,
    /// The peak memory, in MiB.
    pub peak_rss_mib: f64,
}

impl DeleteReport {
    /// Returns the lines of a table: figure, aim, result.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let row = |what: &str, aim: &str, found: String| [what.to_owned(), aim.to_owned(), found];
        vec![
            row("held: CPU per delete", "", format!("{:.3} ms", self.held_cpu_ms_per_request)),
            row("of that in the kernel", "", format!("{:.3} ms", self.held_system_ms_per_request)),
            row("held: deletes/s on one core", "8,000", format!("{:.0}", self.held_per_second)),
            row("let through: CPU per delete", "", format!("{:.3} ms", self.granted_cpu_ms_per_request)),
            row("let through: deletes/s on one core", "8,000", format!("{:.0}", self.granted_per_second)),
            row("p50 at half load", "", format!("{:.2} ms", self.p50_ms)),
            row("p99 at half load", "3 ms", format!("{:.2} ms", self.p99_ms)),
            row("p99 at 4,000 deletes/s", "3 ms", format!("{:.2} ms", self.p99_at_aim_ms)),
            row("RSS", "20 MiB", format!("{:.1} MiB (peak {:.1})", self.rss_mib, self.peak_rss_mib)),
        ]
    }
}

/// Measures the validating webhook. Takes four times [`WebhookOptions::each`] and some seconds.
///
/// # Errors
/// Fails if the webhook cannot be started, or gives a wrong answer to a review.
pub async fn run_deletes(options: WebhookOptions) -> Result<DeleteReport> {
    on_a_thread(async move || measure(&options).await).await
}

async fn measure(options: &WebhookOptions) -> Result<DeleteReport> {
    let server_cpu = bind()?;
    let webhook = WebhookProcess::start(&options.program, server_cpu).await?;
    let held = WebhookLoad::new(&webhook, "/delete?timeout=10s", delete_held()?, ExpectedAnswer::Held);
    let granted =
        WebhookLoad::new(&webhook, "/delete?timeout=10s", delete_granted()?, ExpectedAnswer::Allowed);

    held.saturate(options.connections, options.each / 10).await?;
    let before = webhook.cpu()?;
    let holds = held.saturate(options.connections, options.each).await?;
    let held_cpu = webhook.cpu()? - before;
    let before = webhook.cpu()?;
    let grants = granted.saturate(options.connections, options.each).await?;
    let granted_cpu = webhook.cpu()? - before;
    let mut latency = held.at_rate(options.connections, holds.per_second() / 2.0, options.each).await?;
    let mut aim_latency = held.at_rate(options.connections, AIM_HALF, options.each).await?;
    let memory = webhook.memory()?;
    webhook.stop().await?;

    Ok(DeleteReport {
        pod_bytes: DELETED_POD_BYTES,
        held_cpu_ms_per_request: per_request_ms(held_cpu.user + held_cpu.system, holds.requests)?,
        held_system_ms_per_request: per_request_ms(held_cpu.system, holds.requests)?,
        held_per_second: holds.per_second(),
        granted_cpu_ms_per_request: per_request_ms(granted_cpu.user + granted_cpu.system, grants.requests)?,
        granted_per_second: grants.per_second(),
        p50_ms: percentile_ms(&mut latency, 50),
        p99_ms: percentile_ms(&mut latency, 99),
        p99_at_aim_ms: percentile_ms(&mut aim_latency, 99),
        rss_mib: memory.now_mib,
        peak_rss_mib: memory.peak_mib,
    })
}
