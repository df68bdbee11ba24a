//! `kubectl podward release`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kube::Client;

/// Let go of all pods, before Podward is uninstalled
#[derive(Debug, Args)]
pub(crate) struct Release {}

impl Release {
    pub(crate) async fn run(self, _client: Client) -> Result<ExitCode> {
        anyhow::bail!("can't be done yet")
    }
}
