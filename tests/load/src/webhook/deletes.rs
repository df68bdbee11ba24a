//! The validating webhook alone: what one delete of a pod costs, held or let through.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::client::{Expect, Load};
use super::review::{DELETED_POD_BYTES, delete_granted, delete_held};
use super::server::Webhook;
use super::{WebhookOptions, bind, on_a_thread, per_request_ms, percentile_ms};

/// Requests per second at which the latency that is asked for must hold: half of what is asked of the webhook.
const AIM_HALF: f64 = 4_000.0;

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeleteReport {
    /// Size of the pod in a review.
    pub pod_bytes: usize,
    /// Deletes that are held, their wish being on the pod already: CPU time of the webhook for one.
    pub held_cpu_ms_per_request: f64,
    /// The same, only what the kernel did for it: sockets.
    pub held_system_ms_per_request: f64,
    /// The same, requests per second on one CPU.
    pub held_per_second: f64,
    /// Deletes that are let through because everybody has let go: CPU time for one.
    pub granted_cpu_ms_per_request: f64,
    /// The same, requests per second on one CPU.
    pub granted_per_second: f64,
    /// Median latency of held ones at half of what was reached, from when a request was due.
    pub p50_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// 99th percentile at 4,000 requests per second.
    pub p99_at_aim_ms: f64,
    /// Memory after all of it.
    pub rss_mib: f64,
    /// The most memory there ever was.
    pub peak_rss_mib: f64,
}

impl DeleteReport {
    /// The lines of a table: what, aim, found.
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
///
/// When the webhook can't be started, or answers a review with anything but what it should.
pub async fn run_deletes(options: WebhookOptions) -> Result<DeleteReport> {
    on_a_thread(async move || measure(&options).await).await
}

async fn measure(options: &WebhookOptions) -> Result<DeleteReport> {
    let server_cpu = bind()?;
    let webhook = Webhook::start(&options.program, server_cpu).await?;
    let held = Load::new(&webhook, "/delete?timeout=10s", delete_held()?, Expect::Held);
    let granted = Load::new(&webhook, "/delete?timeout=10s", delete_granted()?, Expect::Allowed);

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
