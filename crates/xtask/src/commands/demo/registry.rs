//! `cargo xtask demo registry`: requests that clients of service registries lose without and with Podward.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use podward_support::demo;
use podward_support::demo::registry::{self, RegistryDemo, RegistryKind};
use podward_testbed::Part;

use super::choices::DemoChoices;
use crate::prepare;

/// Count the requests that clients lose which find the pods through a service registry, without and with Podward.
///
/// The demo starts a cluster and real servers of the registries, and performs a rolling update, an in-place update, a
/// drain and a scale-in while clients read the registry every few seconds and send requests to the instances that it
/// shows. Without Podward, a syncer registers pods that are ready and deregisters the others at once. The demo prints a
/// table of the requests that failed, and fails if any request fails with Podward.
#[derive(Debug, Args)]
pub(crate) struct RegistryDemoCommand {
    /// Registries, separated by commas: consul, dubbo (ZooKeeper with Dubbo 2), etcd, eureka, nacos, zookeeper (with
    /// Spring Cloud)
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',', default_values = ["eureka", "nacos"])]
    registries: Vec<RegistryKind>,
    /// Seconds between two reads of a client, 1 to 30; also the age of the lists of Eureka's server
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=30))]
    cache: u8,
    /// Requests per second of each client: one opens a connection for each request, one keeps connections alive
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    #[command(flatten)]
    choices: DemoChoices,
}

impl RegistryDemoCommand {
    pub(super) async fn run(mut self) -> Result<ExitCode> {
        self.registries.sort_unstable();
        self.registries.dedup();
        let parts = self.registries.iter().filter_map(|kind| part(*kind));
        let parts: Vec<Part> = Part::ALL.into_iter().chain(parts).collect();
        prepare::test_cluster(&parts, true).await?;
        let demo = demo::Demo { rate: self.rate, ..self.choices.into_demo() };
        let cache = Duration::from_secs(self.cache.into());
        registry::run(RegistryDemo { demo, registries: self.registries, cache }).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the programs of a registry, besides those of a cluster.
fn part(kind: RegistryKind) -> Option<Part> {
    match kind {
        RegistryKind::Consul => Some(Part::Consul),
        RegistryKind::Etcd => None,
        RegistryKind::Eureka => Some(Part::Eureka),
        RegistryKind::Nacos => Some(Part::Nacos),
        RegistryKind::Dubbo | RegistryKind::ZooKeeper => Some(Part::ZooKeeper),
    }
}
