//! `cargo xtask testbed`: clusters for people.

mod build;
mod down;
mod exec;
mod status;
mod up;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// The commands around a bed.
#[derive(Debug, Subcommand)]
pub(crate) enum Testbed {
    /// Build the programs of a cluster into the cache folder; everything that is there already is kept
    Build(build::Build),
    /// Start a cluster that stays until it is taken down
    Up(up::Up),
    /// End a cluster and remove everything it left
    Down(down::Down),
    /// List the clusters that run
    Status(status::Status),
    /// Run a command in a cluster's network, with KUBECONFIG set and kubectl and helm on the PATH
    Exec(exec::Exec),
}

/// Which bed is meant.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The cluster's name
    #[arg(long = "name", value_name = "NAME", default_value = "dev")]
    name: String,
}

impl Testbed {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Build(build) => build.run().await,
            Self::Up(up) => up.run().await,
            Self::Down(down) => down.run().await,
            Self::Status(status) => status.run().await,
            Self::Exec(exec) => exec.run().await,
        }
    }
}
