//! Plays acts and watches what clients see of them.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use demo_client::Connections;

use super::{
    Clock, Demo,
    act::Act,
    entry::{Entry, Server},
    workload::{self, Workload},
};
use crate::{Cluster, Load, LoadOptions, PodFeed};

/// How long the load goes on after an act: what it left behind is part of it.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// Every request takes a moment, as real ones do, so that some are always in flight.
const PATH: &str = "/slow?ms=5";

/// Who the pods are left to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Kubernetes alone: the pods have not opted in.
    Stock,
    /// Podward.
    Podward,
}

impl Side {
    /// What is shown on this side: servers, each with the clients that are counted.
    ///
    /// No Service can end a connection that is kept alive, so a server that exits at once cuts those that it has; with Podward, they are
    /// shown on a server that closes them after an answer. See docs/zero-loss.md.
    const fn cases(self) -> &'static [(Server, &'static [Connections])] {
        const BOTH: &[Connections] = &[Connections::New, Connections::KeepAlive];
        match self {
            Side::Stock => &[(Server::ExitsAtOnce, BOTH)],
            Side::Podward => &[(Server::ExitsAtOnce, &[Connections::New]), (Server::Graceful, BOTH)],
        }
    }
}

/// Where acts are played.
pub(super) struct Scene<'a> {
    pub(super) demo: &'a Demo,
    pub(super) cluster: &'a Cluster,
    /// The load client's program.
    pub(super) client: PathBuf,
    pub(super) clock: &'a Clock,
}

impl Scene<'_> {
    /// Every act that is asked for, `runs` times.
    pub(super) async fn play_all(&self, side: Side, runs: usize) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for run in 1..=runs {
            for act in Act::ALL {
                if !self.demo.acts.is_empty() && !self.demo.acts.contains(&act) {
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
        (act, side, run): (Act, Side, usize),
        server: Server,
        connections: &[Connections],
    ) -> Result<Vec<Entry>> {
        let who = if side == Side::Podward { "podward" } else { "stock" };
        let namespace = format!("demo-{act}-{who}-{}-{run}", server.mode());
        let client = self.cluster.client();
        let feed = PodFeed::start(client, &namespace, workload::SELECTOR).await?;
        let image = self.demo.images.v1.clone();
        let opted_in = side == Side::Podward;
        let workload = Workload { namespace, image, server, opted_in, strategy: None, feed };
        let played = self.under_load(act, &workload, connections).await;
        if !self.demo.keep || played.is_ok() {
            workload.remove().await?;
        }
        let (took, loads) = played.with_context(|| format!("{act} in namespace {}", workload.namespace))?;
        let podward = side == Side::Podward;
        let entry = |load| Entry::of((act, podward, run), server, took.as_secs_f64(), load);
        let entries: Vec<Entry> = loads.into_iter().map(entry).collect();
        for entry in &entries {
            let (failed, requests, how) = (entry.failed, entry.requests, entry.connections);
            let took = took.as_secs_f64();
            self.clock.say(&format!(
                "{act}, {who}, server {server}, {how} connections: lost {failed} of {requests} in {took:.1} s"
            ));
            // Each is one too many.
            for failure in entry.failures.iter().filter(|_| podward) {
                let (reason, after) = (&failure.reason, failure.took_ms);
                self.clock
                    .say(&format!("lost, {after:.0} ms after it was due, at {}: {reason}", failure.at_ms));
            }
        }
        Ok(entries)
    }

    async fn under_load(
        &self,
        act: Act,
        workload: &Workload,
        connections: &[Connections],
    ) -> Result<(Duration, Vec<demo_client::LoadReport>)> {
        let target = workload.create().await?;
        let options = LoadOptions {
            program: self.client.clone(),
            image: self.demo.images.v1.clone(),
            target,
            path: PATH.to_owned(),
            connections: connections.to_vec(),
            rate: self.demo.rate,
        };
        let load = Load::start(self.cluster, options).await?;
        let started = Instant::now();
        let performed = act.perform(workload, &self.demo.images.v2).await;
        let took = started.elapsed();
        tokio::time::sleep(AFTERWARDS).await;
        let report = load.stop().await?;
        performed?;
        Ok((took, report.loads))
    }
}
