//! `cargo xtask testbed exec`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use podward_testbed::Bed;

use super::Name;

/// Run a command in a cluster's network.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    name: Name,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Exec {
    /// Becomes the command, so that its exit code, its signals and the terminal are its own.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let bed = Bed::attach(&self.name.name).await?;
        let error = bed.exec_command(&self.command).exec();
        let what = self.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Err(anyhow!(error).context(format!("cannot run {what} in {}", bed.id())))
    }
}
