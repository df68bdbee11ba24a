//! The commands. Each has a file of its own.

mod bench;
mod ci;
mod crds;
mod cycles;
mod demo;
mod deploy;
mod fuzz;
mod images;
mod kubernetes;
mod plugin;
mod reference;
mod release;
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
    Demo(demo::DemoCommand),
    /// Run Kubernetes on this machine for development, without a container registry
    #[command(subcommand)]
    Testbed(testbed::Testbed),
    Images(images::Images),
    Crds(crds::Crds),
    Reference(reference::Reference),
    Deploy(deploy::Deploy),
    Release(release::Release),
    Plugin(plugin::Plugin),
    Test(test::Test),
    Bench(bench::Bench),
    Fuzz(fuzz::Fuzz),
    Cycles(cycles::Cycles),
    Kubernetes(kubernetes::Kubernetes),
    Ci(ci::Ci),
}

impl Cli {
    /// Runs the command and returns its exit code.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Demo(demo) => demo.run().await,
            Command::Testbed(testbed) => testbed.run().await,
            Command::Images(images) => images.run().await,
            Command::Crds(crds) => crds.run(),
            Command::Reference(reference) => reference.run(),
            Command::Deploy(deploy) => deploy.run().await,
            Command::Release(release) => release.run().await,
            Command::Plugin(plugin) => plugin.run().await,
            Command::Test(test) => test.run().await,
            Command::Bench(bench) => bench.run().await,
            Command::Fuzz(fuzz) => fuzz.run().await,
            Command::Cycles(cycles) => cycles.run().await,
            Command::Kubernetes(kubernetes) => kubernetes.run().await,
            Command::Ci(ci) => ci.run().await,
        }
    }
}
