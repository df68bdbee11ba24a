//! `kubectl podward doctor`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kube::Client;

/// Check an installation of Podward
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn run(self, _client: Client) -> Result<ExitCode> {
        anyhow::bail!("can't be done yet")
    }
}
