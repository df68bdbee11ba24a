//! A registry that loses its data.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::binding::Bound;
use super::bridge::BridgeNumbers;
use super::instances::count;
use super::server::RegistryName;

/// The share of the pods.
const SHARE: usize = 2;
/// The interval of comparisons, for registries that cannot be watched, in seconds.
const INTERVAL: u32 = 10;
/// The interval of reads of the metrics.
const POLL: Duration = Duration::from_millis(50);
/// The time in which changes are counted for the highest rate.
const WINDOW: Duration = Duration::from_secs(1);

/// The results for one registry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LossReport {
    /// The registry.
    pub registry: RegistryName,
    /// The number of instances.
    pub instances: usize,
    /// The time from the start of the empty registry until the first instance was registered, in seconds.
    pub first_seconds: f64,
    /// The time from the start of the empty registry until all instances were registered, in seconds.
    pub all_seconds: f64,
    /// The number of registrations in each second, from the first to the last.
    pub per_second: f64,
    /// The greatest number of registrations within a second.
    pub most_within_a_second: f64,
}

pub(super) async fn measure(bench: &Bench<'_>, name: RegistryName) -> Result<LossReport> {
    let mut bound = Bound::start(bench, name, bench.options.pods / SHARE).await?;
    bench.bridge.restart().await?;
    bound.bind(INTERVAL).await?;
    let before = bench.bridge.until_present(bound.pods()).await?;
    bound.server.restart_empty().await?;
    let begun = Instant::now();
    let wanted = before.shown + bound.pods() as f64;
    let mut samples: Vec<BridgeNumbers> = Vec::new();
    loop {
        let numbers = bench.bridge.numbers().await?;
        samples.push(numbers);
        if numbers.shown >= wanted && numbers.present >= bound.pods() as f64 {
            break;
        }
        ensure!(
            begun.elapsed() < super::names::DEADLINE,
            "{} of {} instances are registered again",
            numbers.shown - before.shown,
            bound.pods()
        );
        tokio::time::sleep(POLL).await;
    }
    let registry = bound.server.client()?;
    let found = count(&*registry, bound.services()).await?;
    // Eureka's lists are older.
    if registry.capabilities().list_lag.is_zero() {
        ensure!(found == bound.pods(), "the registry shows {found} of {} instances", bound.pods());
    }
    let first = samples.iter().find(|sample| sample.shown > before.shown).map_or(begun, |sample| sample.at);
    let last = samples.last().map_or(begun, |sample| sample.at);
    let report = LossReport {
        registry: name,
        instances: bound.pods(),
        first_seconds: (first - begun).as_secs_f64(),
        all_seconds: (last - begun).as_secs_f64(),
        per_second: bound.pods() as f64 / (last - first).as_secs_f64(),
        most_within_a_second: most_within(WINDOW, &samples),
    };
    bound.end().await?;
    Ok(report)
}

/// Returns the greatest number of changes between two samples that are at most `window` apart.
fn most_within(window: Duration, samples: &[BridgeNumbers]) -> f64 {
    let ends = samples.iter().enumerate().map(|(end, last)| {
        let first = samples[..=end].iter().find(|first| last.at - first.at <= window);
        first.map_or(0.0, |first| last.shown - first.shown)
    });
    ends.fold(0.0, f64::max)
}
