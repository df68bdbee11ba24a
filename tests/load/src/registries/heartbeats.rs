//! The heartbeats of all pods at rest.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::binding::Bound;
use super::server::RegistryName;

/// The default of a binding, in seconds.
const INTERVAL: u32 = 300;
/// Eureka's lists are 30 s old at most. Afterwards they show all instances, and each was renewed.
const WARM_UP: Duration = Duration::from_secs(35);

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatsReport {
    /// The registry.
    pub registry: RegistryName,
    /// The number of instances.
    pub instances: usize,
    /// The duration of the measurement, in seconds.
    pub seconds: f64,
    /// The number of heartbeats in each second.
    pub heartbeats_per_second: f64,
    /// The number of heartbeats that failed.
    pub failed: f64,
    /// The number of full comparisons meanwhile.
    pub comparisons: f64,
    /// The CPU time of the bridge in each second, in seconds: the number of cores.
    pub cores: f64,
    /// The resident memory of the bridge at the end, in MiB.
    pub rss_mib: f64,
}

pub(super) async fn measure(bench: &Bench<'_>, name: RegistryName) -> Result<HeartbeatsReport> {
    let bound = Bound::start(bench, name, bench.options.pods).await?;
    bench.bridge.restart().await?;
    bound.bind(INTERVAL).await?;
    bench.bridge.until_present(bound.pods()).await?;
    tokio::time::sleep(WARM_UP).await;
    let usage = bench.bridge.usage()?;
    let (before, cpu) = (bench.bridge.numbers().await?, usage.cpu_ms()?);
    tokio::time::sleep(bench.options.rest).await;
    let (after, cpu) = (bench.bridge.numbers().await?, usage.cpu_ms()? - cpu);
    ensure!(after.present >= bound.pods() as f64, "{} of {} instances are left", after.present, bound.pods());
    let seconds = (after.at - before.at).as_secs_f64();
    let report = HeartbeatsReport {
        registry: name,
        instances: bound.pods(),
        seconds,
        heartbeats_per_second: (after.renewals - before.renewals) / seconds,
        failed: after.failed_renewals - before.failed_renewals,
        comparisons: after.comparisons - before.comparisons,
        cores: cpu / 1e3 / seconds,
        rss_mib: usage.rss_mib()?,
    };
    bound.end().await?;
    Ok(report)
}
