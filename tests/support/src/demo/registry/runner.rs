//! Runs acts for clients of registries.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use demo_client::Connections;
use futures::future::try_join_all;

use super::{
    options::RegistryDemo,
    server::RegistryServer,
    workload::{DiscoveredWorkload, RegistryClients},
};
use crate::{
    Cluster, LoadClientOptions, PodFeed,
    demo::{
        act::Act,
        clients::DemoClients,
        clock::DemoClock,
        entry::DemoEntry,
        runner::DemoSide,
        server::DemoServer,
        workload::{self, DemoWorkload},
    },
};

/// The time that the load goes on after an act, when the caches of clients have ended. Late effects count, too.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// The server exits at once, also on its kept-alive connections: clients of a registry close those themselves.
const SERVER: DemoServer = DemoServer::ExitsAtOnce;

/// Runs acts on a cluster.
pub(super) struct RegistryRunner<'a> {
    pub(super) options: &'a RegistryDemo,
    pub(super) cluster: &'a Cluster,
    pub(super) servers: &'a [RegistryServer],
    /// The path of the load client.
    pub(super) client: PathBuf,
    pub(super) clock: &'a DemoClock,
}

impl RegistryRunner<'_> {
    /// Runs all selected acts `runs` times, each for all registries at the same time, and returns the results.
    pub(super) async fn play_all(&self, side: DemoSide, runs: usize) -> Result<Vec<DemoEntry>> {
        let mut entries = Vec::new();
        for run in 1..=runs {
            for act in Act::ALL.into_iter().filter(|act| self.options.demo.includes(*act)) {
                let playing = self.servers.iter().map(|server| self.play((act, side, run), server));
                let played: Vec<_> = try_join_all(playing).await?.into_iter().flatten().collect();
                played.iter().for_each(|entry| self.clock.announce(entry));
                entries.extend(played);
            }
        }
        Ok(entries)
    }

    async fn play(
        &self,
        (act, side, run): (Act, DemoSide, usize),
        server: &RegistryServer,
    ) -> Result<Vec<DemoEntry>> {
        let namespace = format!("demo-{act}-{side}-{}-{run}", server.kind());
        let demo = &self.options.demo;
        let clients = RegistryClients {
            program: self.client.clone(),
            cache: self.options.cache,
            max_age: None,
            connections: vec![Connections::New, Connections::KeepAlive],
            rate: demo.rate,
            slack: RegistryClients::USUAL_SLACK,
            timeout: LoadClientOptions::USUAL_TIMEOUT,
        };
        let removal_wait = clients.removal_wait(server);
        let workload = DemoWorkload {
            feed: PodFeed::start(self.cluster.client(), &namespace, workload::SELECTOR).await?,
            namespace,
            image: demo.images.v1.clone(),
            server: SERVER,
            opted_in: side == DemoSide::Podward,
            strategy: None,
            two_pods_on: None,
            removal_wait,
            // The pods of several registries run at the same time.
            cpu_request: "20m",
        };
        let what = format!("{act} in namespace {}", workload.namespace);
        let played = async {
            let discovered = DiscoveredWorkload::start(self.cluster, workload, server, clients).await?;
            let started = Instant::now();
            let performed = discovered.perform(act, &demo.images.v2).await;
            let took = started.elapsed();
            performed?;
            // So the clients have used the registry until the end.
            discovered.until_all_answer().await?;
            tokio::time::sleep(removal_wait + AFTERWARDS).await;
            let (loads, workload) = discovered.stop().await?;
            workload.remove().await?;
            anyhow::Ok((took, loads))
        };
        let (took, loads) = played.await.context(what)?;
        let (podward, clients) = (side == DemoSide::Podward, DemoClients::Registry(server.kind()));
        let entry = |load| DemoEntry::of((act, podward, run), clients, SERVER, took.as_secs_f64(), load);
        Ok(loads.into_iter().map(entry).collect())
    }
}
