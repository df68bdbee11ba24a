//! The commands, one file each.

mod bench;
mod ci;
mod crds;
mod demo;
mod deploy;
mod images;
mod test;
mod testbed;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Builds, runs and tests Podward.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// An in-place update of six pods that loses no traffic, on a real cluster, step by step
    Demo(demo::Demo),
    /// A real Kubernetes on this machine, without a container registry
    #[command(subcommand)]
    Testbed(testbed::Testbed),
    /// Write container images of this workspace's programs as OCI archives
    Images(images::Images),
    /// Write `deploy/crds` from the types in `crates/api`
    Crds(crds::Crds),
    /// Write `deploy/podward` from the Helm chart
    Deploy(deploy::Deploy),
    /// Run all tests, those against a real cluster too
    Test(test::Test),
    /// Measure what Podward costs
    Bench(bench::Bench),
    /// Formatting, lints, dependencies, tests: what a change must pass
    Ci(ci::Ci),
}

impl Cli {
    /// Runs the command; the exit code is the command's own.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Demo(demo) => demo.run().await,
            Command::Testbed(testbed) => testbed.run().await,
            Command::Images(images) => images.run().await,
            Command::Crds(crds) => crds.run(),
            Command::Deploy(deploy) => deploy.run().await,
            Command::Test(test) => test.run().await,
            Command::Bench(bench) => bench.run().await,
            Command::Ci(ci) => ci.run().await,
        }
    }
}
