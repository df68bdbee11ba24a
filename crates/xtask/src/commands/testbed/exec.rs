//! `cargo xtask testbed exec`: runs a command in a test cluster's network.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use podward_testbed::TestCluster;

use super::name::ClusterName;

/// Run a command in a cluster's network, with KUBECONFIG set and kubectl and helm on the PATH.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    name: ClusterName,
    /// The real node in whose network the command runs; without it, that of the control plane and of node1
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Exec {
    /// Replaces this process by the command, so that the command has the terminal, the signals and the exit code.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let bed = TestCluster::attach(&self.name.name).await?;
        let mut command = match &self.node {
            Some(node) => bed.node(node)?.exec_command(&self.command).await?,
            None => bed.exec_command(&self.command),
        };
        let error = command.exec();
        let what = self.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Err(anyhow!(error).context(format!("cannot run {what} in {}", bed.id())))
    }
}
