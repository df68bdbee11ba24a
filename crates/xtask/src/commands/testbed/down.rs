//! `cargo xtask testbed down`: ends a test cluster.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use podward_testbed::TestCluster;

use super::name::ClusterName;

/// End a cluster and remove its files.
#[derive(Debug, Args)]
pub(crate) struct Down {
    #[command(flatten)]
    name: ClusterName,
}

impl Down {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let bed = TestCluster::attach(&self.name.name).await?;
        bed.down().await?;
        println!("{} has ended", bed.id());
        Ok(ExitCode::SUCCESS)
    }
}
