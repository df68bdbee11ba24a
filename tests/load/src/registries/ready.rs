//! The time from Ready to visible, pod by pod.

use std::time::Instant;

use anyhow::{Context, Result};
use podward_registries::{Change, Registry};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::binding::Bound;
use super::instances::{instance_of, instance_without_pod, key, until_visible};
use super::server::RegistryName;
use crate::times::Times;

/// The service of the pods.
const SERVICE: &str = "ready";
/// No comparison interferes.
const INTERVAL: u32 = 3600;

/// The results for one registry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadyReport {
    /// The registry.
    pub registry: RegistryName,
    /// The number of other instances that the binding has.
    pub others: usize,
    /// The number of pods.
    pub pods: usize,
    /// The time from the event with which a watch shows the pod Ready until the registry shows its instance.
    pub ready_to_visible: Times,
    /// The time from the begin of a registration without the bridge until the registry shows it.
    pub own: Times,
}

pub(super) async fn measure(bench: &Bench<'_>, name: RegistryName) -> Result<ReadyReport> {
    let others = bench.options.pods / 5;
    let mut services: Vec<String> =
        (0..others.div_ceil(bench.options.pods_of_service)).map(super::pods::service).collect();
    services.push(SERVICE.to_owned());
    let bound = Bound::of_services(bench, name, services).await?;
    let (writer, reader) = (bound.server.client()?, bound.server.client()?);
    let own = one_by_one(bench.options.one_by_one, &*writer, &*reader).await?;
    bound.bind(INTERVAL).await?;
    bench.bridge.until_present(others).await?;
    let mut times = Vec::new();
    for number in 0..bench.options.one_by_one {
        let pod = format!("{SERVICE}-{name}-{number}");
        bench.pods.create(&pod, SERVICE).await?;
        let ready = bench.pods.until_ready(&pod).await?;
        until_visible(&*reader, &key(SERVICE), &instance_of(&ready)).await?;
        times.push(ready.at.elapsed().as_secs_f64() * 1e3);
    }
    let report = ReadyReport {
        registry: name,
        others,
        pods: times.len(),
        ready_to_visible: Times::of(times),
        own: Times::of(own),
    };
    bound.end().await?;
    for number in 0..bench.options.one_by_one {
        bench.pods.delete(&format!("{SERVICE}-{name}-{number}")).await?;
    }
    Ok(report)
}

/// Registers instances one after the other without the bridge. Returns the times until each is visible, in milliseconds.
async fn one_by_one(count: usize, writer: &dyn Registry, reader: &dyn Registry) -> Result<Vec<f64>> {
    let service = key("direct");
    let mut times = Vec::new();
    for number in 0..count {
        let instance = instance_without_pod(number);
        let begun = Instant::now();
        let change = Change::Register(service.clone(), instance.clone());
        let written = writer.write(std::slice::from_ref(&change)).await;
        written.into_iter().collect::<Result<(), _>>().context("register without the bridge")?;
        until_visible(reader, &service, &instance).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}
