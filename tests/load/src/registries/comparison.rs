//! Full comparisons of a registry with all pods.

use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::binding::Bound;
use super::server::RegistryName;

/// The shortest interval of comparisons that a binding may state, in seconds.
const INTERVAL: u32 = 10;
/// The number of comparisons that are measured.
const COMPARISONS: f64 = 5.0;

/// The results for one registry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// The registry.
    pub registry: RegistryName,
    /// The number of instances.
    pub instances: usize,
    /// The time from the creation of the binding until all instances were registered, in seconds.
    pub registered_seconds: f64,
    /// The mean time of a comparison, in milliseconds.
    pub comparison_ms: f64,
    /// The CPU time of the bridge for a comparison, with what it does besides, in milliseconds.
    pub comparison_cpu_ms: f64,
    /// The resident memory of the bridge after the comparisons, in MiB.
    pub rss_mib: f64,
    /// The peak of its resident memory since its start, in MiB.
    pub peak_rss_mib: f64,
    /// Its resident memory with all pods, before there was a binding, in MiB.
    pub rss_without_binding_mib: f64,
}

pub(super) async fn measure(bench: &Bench<'_>, name: RegistryName) -> Result<ComparisonReport> {
    let bound = Bound::start(bench, name, bench.options.pods).await?;
    bench.bridge.restart().await?;
    let usage = bench.bridge.usage()?;
    let rss_without_binding_mib = usage.rss_mib()?;
    let begun = Instant::now();
    bound.bind(INTERVAL).await?;
    bench.bridge.until_present(bound.pods()).await?;
    let registered_seconds = begun.elapsed().as_secs_f64();
    // What was registered is compared once before.
    let next = bench.bridge.numbers().await?.comparisons + 1.0;
    let before = bench.bridge.until("a comparison", |numbers| numbers.comparisons >= next).await?;
    let cpu = usage.cpu_ms()?;
    let end = before.comparisons + COMPARISONS;
    let after = bench.bridge.until("comparisons", |numbers| numbers.comparisons >= end).await?;
    let count = after.comparisons - before.comparisons;
    let report = ComparisonReport {
        registry: name,
        instances: bound.pods(),
        registered_seconds,
        comparison_ms: (after.comparison_seconds - before.comparison_seconds) * 1e3 / count,
        comparison_cpu_ms: (usage.cpu_ms()? - cpu) / count,
        rss_mib: usage.rss_mib()?,
        peak_rss_mib: usage.peak_rss_mib()?,
        rss_without_binding_mib,
    };
    bound.end().await?;
    Ok(report)
}
