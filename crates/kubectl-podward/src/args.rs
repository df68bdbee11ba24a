//! Command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use podward_runtime::args::KubeArgs;
use podward_runtime::client;

use crate::commands::Command;

/// Podward's plugin of kubectl
#[derive(Debug, Parser)]
#[command(version, bin_name = "kubectl podward")]
pub struct Args {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(subcommand)]
    command: Command,
}

impl Args {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let client = client::connect(&self.kube, "kubectl", env!("CARGO_PKG_VERSION")).await?;
        self.command.run(client).await
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_go_together() {
        Args::command().debug_assert();
    }
}
