//! The command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use podward_runtime::args::KubeArgs;
use podward_runtime::client;

use crate::commands::PluginCommand;

/// Check, query and release what Podward manages
#[derive(Debug, Parser)]
#[command(version, bin_name = "kubectl podward")]
pub struct PluginArgs {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(subcommand)]
    command: PluginCommand,
}

impl PluginArgs {
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
        PluginArgs::command().debug_assert();
    }
}
