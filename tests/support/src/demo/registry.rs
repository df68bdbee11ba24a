//! The demo of registries: clients that know the pods only from a registry, without and with Podward.

mod options;
mod runner;
mod server;
mod syncer;
mod workload;

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, Result};
pub use demo_client::RegistryKind;
use futures::future::try_join_all;

use self::runner::RegistryRunner;
pub use self::{
    options::RegistryDemo,
    server::RegistryServer,
    workload::{DiscoveredWorkload, RegistryClients},
};
use super::{clock::DemoClock, end_cluster, report, runner::DemoSide, start_cluster, tell_how_to_use};
use crate::{Cluster, Installation};

/// The value of the chart that installs the service-discovery-bridge.
pub const WITH_BRIDGE: &str = "service-discovery-bridge.enabled=true";

/// Runs the demo and prints the results.
///
/// # Errors
/// Fails if something cannot be built or started, an act does not end, or requests were lost with Podward.
pub async fn run(options: RegistryDemo) -> Result<()> {
    let clock = DemoClock(Instant::now());
    let (cluster, client) = start_cluster(&options.demo, &clock).await?;
    let outcome = play(&options, &cluster, client, &clock).await;
    end_cluster(&options.demo, &cluster, outcome).await
}

/// Runs the acts without Podward, then, in the same cluster, with Podward.
async fn play(options: &RegistryDemo, cluster: &Cluster, client: PathBuf, clock: &DemoClock) -> Result<()> {
    let demo = &options.demo;
    let names: Vec<&str> = options.registries.iter().map(|kind| kind.as_str()).collect();
    clock.say(&format!("start the servers of {}", names.join(", ")));
    let starting = options.registries.iter().map(|kind| RegistryServer::start(cluster, *kind, options.cache));
    let servers = try_join_all(starting).await.context("start the servers of the registries")?;
    let runner = RegistryRunner { options, cluster, servers: &servers, client, clock };
    let mut entries = Vec::new();
    if !demo.no_stock {
        entries.extend(runner.play_all(DemoSide::Stock, 1).await?);
    }
    if !demo.no_podward {
        clock.say("install Podward by Helm, with the service-discovery-bridge");
        let installation = Installation::install(cluster, &[WITH_BRIDGE]).await?;
        let played = runner.play_all(DemoSide::Podward, demo.runs).await;
        if let Some(test_cluster) = cluster.test_cluster().filter(|_| demo.keep) {
            tell_how_to_use(test_cluster);
        }
        match played {
            Ok(played) => entries.extend(played),
            Err(error) => return Err(error.context(installation.diagnostics().await)),
        }
    }
    report(demo, &entries)
}
