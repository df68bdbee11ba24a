//! Runs acts under load and counts what clients lose.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use demo_client::{Connections, LoadReport};

use super::{
    act::Act,
    clients::{ClientOptions, DemoClients, RunningClients},
    clock::DemoClock,
    entry::DemoEntry,
    options::Demo,
    pictures,
    server::DemoServer,
    workload::{self, DemoWorkload},
};
use crate::{Cluster, PodFeed};

/// The time that the load goes on after an act. Late effects count, too.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// The path of requests. A request takes a moment, so that some are always in flight.
pub(super) const PATH: &str = "/slow?ms=5";

/// Whether Podward manages the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoSide {
    /// Without Podward: the pods have not opted in.
    Stock,
    /// With Podward.
    Podward,
}

impl fmt::Display for DemoSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stock => "stock",
            Self::Podward => "podward",
        })
    }
}

impl DemoSide {
    /// Returns the servers to show, each with the kinds of connections that are counted.
    ///
    /// A Service cannot close a kept-alive connection, so that a server that exits at once breaks its connections.
    /// With Podward, kept-alive connections are shown on a server that closes them after a response. See
    /// docs/operations/zero-loss.md.
    const fn cases(self) -> &'static [(DemoServer, &'static [Connections])] {
        const BOTH: &[Connections] = &[Connections::New, Connections::KeepAlive];
        match self {
            DemoSide::Stock => &[(DemoServer::ExitsAtOnce, BOTH)],
            DemoSide::Podward => {
                &[(DemoServer::ExitsAtOnce, &[Connections::New]), (DemoServer::Graceful, BOTH)]
            }
        }
    }
}

/// Runs acts on a cluster.
pub(super) struct DemoRunner<'a> {
    pub(super) demo: &'a Demo,
    pub(super) cluster: &'a Cluster,
    /// The path of the load client.
    pub(super) client: PathBuf,
    pub(super) clock: &'a DemoClock,
}

impl DemoRunner<'_> {
    /// Runs all selected acts `runs` times and returns the results.
    pub(super) async fn play_all(&self, side: DemoSide, runs: usize) -> Result<Vec<DemoEntry>> {
        let mut entries = Vec::new();
        for run in 1..=runs {
            for act in Act::ALL {
                if !self.demo.includes(act) {
                    continue;
                }
                for (server, connections) in side.cases() {
                    entries.extend(self.play((act, side, run), *server, connections).await?);
                }
            }
        }
        Ok(entries)
    }

    async fn play(
        &self,
        (act, side, run): (Act, DemoSide, usize),
        server: DemoServer,
        connections: &[Connections],
    ) -> Result<Vec<DemoEntry>> {
        let namespace = format!("demo-{act}-{side}-{}-{run}", server.mode());
        let client = self.cluster.client();
        let feed = PodFeed::start(client, &namespace, workload::SELECTOR).await?;
        let image = self.demo.images.v1.clone();
        let opted_in = side == DemoSide::Podward;
        // A scale-in may take all pods of a node, after which a load balancer's clients lose requests at that node.
        let two_pods_on = (self.demo.nodes > 1 && act != Act::ScaleIn).then_some(self.demo.nodes);
        let workload = DemoWorkload {
            namespace,
            image,
            server,
            opted_in,
            strategy: None,
            two_pods_on,
            removal_wait: Duration::ZERO,
            cpu_request: workload::CPU_REQUEST,
            feed,
        };
        let mut played = self.under_load(act, &workload, connections).await;
        if opted_in && act == Act::InPlaceUpdate && played.is_ok() {
            played = self.draw_trace(&workload).await.and(played);
        }
        if !self.demo.keep || played.is_ok() {
            workload.remove().await?;
        }
        let (took, loads) = played.with_context(|| format!("{act} in namespace {}", workload.namespace))?;
        let podward = side == DemoSide::Podward;
        let entry =
            |(clients, load)| DemoEntry::of((act, podward, run), clients, server, took.as_secs_f64(), load);
        let entries: Vec<DemoEntry> = loads.into_iter().map(entry).collect();
        entries.iter().for_each(|entry| self.clock.announce(entry));
        Ok(entries)
    }

    /// Draws the trace of a pod whose operation is over, if pictures are wanted.
    async fn draw_trace(&self, workload: &DemoWorkload) -> Result<()> {
        let Some(dir) = &self.demo.pictures else { return Ok(()) };
        let of_test_cluster = self.cluster.test_cluster().map(|cluster| cluster.kubeconfig());
        let kubeconfig =
            self.demo.kubeconfig.as_deref().or(of_test_cluster).context("there is no kubeconfig")?;
        pictures::draw_trace(dir, kubeconfig, workload).await
    }

    async fn under_load(
        &self,
        act: Act,
        workload: &DemoWorkload,
        connections: &[Connections],
    ) -> Result<(Duration, Vec<(DemoClients, LoadReport)>)> {
        let address = workload.create().await?;
        let node_ports = match workload.two_pods_on {
            Some(_) => Some(workload.open_node_ports().await?),
            None => None,
        };
        let options = ClientOptions {
            program: self.client.clone(),
            image: self.demo.images.v1.clone(),
            path: PATH,
            connections: connections.to_vec(),
            rate: self.demo.rate,
        };
        let load = RunningClients::start(self.cluster, &options, address, node_ports).await?;
        let started = Instant::now();
        let performed = act.perform(workload, &self.demo.images.v2).await;
        let took = started.elapsed();
        tokio::time::sleep(AFTERWARDS).await;
        let loads = load.stop().await?;
        performed?;
        Ok((took, loads))
    }
}
