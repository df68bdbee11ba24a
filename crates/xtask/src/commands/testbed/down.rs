//! `cargo xtask testbed down`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use podward_testbed::Bed;

use super::Name;

/// End a cluster and remove everything it left.
#[derive(Debug, Args)]
pub(crate) struct Down {
    #[command(flatten)]
    name: Name,
}

impl Down {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let bed = Bed::attach(&self.name.name).await?;
        bed.down().await?;
        println!("{} is gone", bed.id());
        Ok(ExitCode::SUCCESS)
    }
}
