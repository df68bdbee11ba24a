//! `cargo xtask testbed cut-off`, `restore`, `stop` and `start`, faults of real nodes, and `lag`, that of an API server.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use podward_testbed::TestCluster;

use super::name::ClusterName;

/// Cut a real node off from the other nodes.
///
/// Packets are dropped in both directions, until `restore`. The control plane is on node1.
#[derive(Debug, Args)]
pub(crate) struct CutOff {
    #[command(flatten)]
    of: NodeName,
}

/// Connect a real node with the other nodes again.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    of: NodeName,
}

/// Stop a program of a real node.
///
/// The pods of the node go on. `start` starts the program again.
#[derive(Debug, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    of: NodeName,
    /// kubelet, kube-proxy or containerd
    program: String,
}

/// Start a stopped program of a real node again.
#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    of: NodeName,
    /// kubelet, kube-proxy or containerd
    program: String,
}

/// Delay the watches of the second API server.
///
/// The cluster needs `up --api-servers 2`. Other requests are not delayed.
#[derive(Debug, Args)]
pub(crate) struct Lag {
    #[command(flatten)]
    cluster: ClusterName,
    /// The delay in seconds, such as 5 or 0.5; 0 ends it
    #[arg(value_parser = seconds)]
    lag: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
struct NodeName {
    #[command(flatten)]
    cluster: ClusterName,
    /// The node, such as node2
    node: String,
}

impl NodeName {
    async fn cluster(&self) -> Result<TestCluster> {
        Ok(TestCluster::attach(&self.cluster.name).await?)
    }
}

impl Lag {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        TestCluster::attach(&self.cluster.name).await?.lag_watches(self.lag).await?;
        println!("watches of the second API server lag by {} s", self.lag.as_secs_f64());
        Ok(ExitCode::SUCCESS)
    }
}

impl CutOff {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        self.of.cluster().await?.node(&self.of.node)?.cut_off().await?;
        println!("{} is cut off", self.of.node);
        Ok(ExitCode::SUCCESS)
    }
}

impl Restore {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        self.of.cluster().await?.node(&self.of.node)?.restore().await?;
        println!("{} is connected", self.of.node);
        Ok(ExitCode::SUCCESS)
    }
}

impl Stop {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let cluster = self.of.cluster().await?;
        let exit = cluster.node(&self.of.node)?.process(&self.program).await?.stop().await?;
        println!("{} of {} has ended with {exit}", self.program, self.of.node);
        Ok(ExitCode::SUCCESS)
    }
}

impl Start {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let cluster = self.of.cluster().await?;
        let process = cluster.node(&self.of.node)?.start(&self.program).await?;
        println!("{} of {} runs, log in {}", self.program, self.of.node, process.log_path().display());
        Ok(ExitCode::SUCCESS)
    }
}
