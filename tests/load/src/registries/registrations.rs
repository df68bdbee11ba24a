//! Many registrations at once: by the bridge, and by a client without it.

use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use podward_registries::{Change, Registry};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::binding::Bound;
use super::instances::{instance_without_pod, key};
use super::pods::service;
use super::server::{RegistryName, RegistryServer};

/// The share of the pods.
const SHARE: usize = 5;
/// No comparison interferes.
const INTERVAL: u32 = 3600;
/// The number of concurrent calls of the bridge.
const MAX_CONCURRENT: usize = 16;

/// The results for one registry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegistrationsReport {
    /// The registry.
    pub registry: RegistryName,
    /// The number of instances.
    pub instances: usize,
    /// The number of registrations in each second by the bridge, until each was read back.
    pub bridge_per_second: f64,
    /// The CPU time of the bridge for each registration, in milliseconds.
    pub bridge_cpu_ms: f64,
    /// The number of changes that failed at first.
    pub failed: f64,
    /// The number of registrations in each second by a client that does nothing else, without reading them back.
    pub direct_per_second: f64,
}

pub(super) async fn measure(bench: &Bench<'_>, name: RegistryName) -> Result<RegistrationsReport> {
    let mut bound = Bound::start(bench, name, bench.options.pods / SHARE).await?;
    let direct_per_second = direct(bench, &bound.server, bound.pods()).await?;
    bound.server.restart_empty().await?;
    bench.bridge.restart().await?;
    let usage = bench.bridge.usage()?;
    let (cpu, begun) = (usage.cpu_ms()?, Instant::now());
    bound.bind(INTERVAL).await?;
    let end = bench.bridge.until_present(bound.pods()).await?;
    let seconds = (end.at - begun).as_secs_f64();
    let report = RegistrationsReport {
        registry: name,
        instances: bound.pods(),
        bridge_per_second: bound.pods() as f64 / seconds,
        bridge_cpu_ms: (usage.cpu_ms()? - cpu) / bound.pods() as f64,
        failed: end.failed,
        direct_per_second,
    };
    bound.end().await?;
    Ok(report)
}

/// Registers `count` instances in as few calls as possible, and returns their number in each second.
async fn direct(bench: &Bench<'_>, server: &RegistryServer, count: usize) -> Result<f64> {
    let registry = server.client()?;
    let of_service = bench.options.pods_of_service;
    let changes: Vec<Change> = (0..count)
        .map(|number| {
            let service = key(&service(number / of_service));
            Change::Register(service, instance_without_pod(number))
        })
        .collect();
    let begun = Instant::now();
    let calls: Vec<_> =
        changes.chunks(registry.capabilities().batch).map(|changes| write(&*registry, changes)).collect();
    futures::stream::iter(calls).buffer_unordered(MAX_CONCURRENT).try_collect::<()>().await?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

async fn write(registry: &dyn Registry, changes: &[Change]) -> Result<()> {
    let results = registry.write(changes).await;
    results.into_iter().collect::<Result<(), _>>().context("register without the bridge")
}
