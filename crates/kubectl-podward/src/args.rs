//! The command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};

use crate::commands::PluginCommand;
use crate::kubectl_args::KubectlArgs;

/// Explain, operate, check and release the pods that Podward manages
#[derive(Debug, Parser)]
#[command(version, bin_name = "kubectl podward")]
pub struct PluginArgs {
    #[command(flatten)]
    kubectl: KubectlArgs,
    #[command(subcommand)]
    command: PluginCommand,
}

impl PluginArgs {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        self.command.run(Self::command(), &self.kubectl).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_go_together() {
        PluginArgs::command().debug_assert();
    }
}
