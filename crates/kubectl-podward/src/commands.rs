//! The commands. Each has a file of its own.

mod doctor;
mod release;
mod why;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use kube::Client;

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    Doctor(doctor::Doctor),
    Release(release::Release),
    Why(why::Why),
}

impl PluginCommand {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        match self {
            Self::Doctor(doctor) => doctor.run(client).await,
            Self::Release(release) => release.run(client).await,
            Self::Why(why) => why.run(client).await,
        }
    }
}
