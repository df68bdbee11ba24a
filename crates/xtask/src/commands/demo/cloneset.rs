//! `cargo xtask demo cloneset`: the states of the pods of a CloneSet, under load.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use podward_support::demo::{self, cloneset};
use podward_testbed::Part;

use crate::prepare;

/// Show the states of the pods of a CloneSet that is updated in place, recreated and scaled in under load.
///
/// The demo starts a cluster with Podward and its cloneset-controller. An operator answers the hooks of a CloneSet of two
/// pods with labels, while clients send requests to its Service. It prints each change of a state and a table of the
/// requests that failed, and fails if any request fails or a pod skips a state.
#[derive(Debug, Args)]
pub(crate) struct CloneSetDemoCommand {
    /// Leave the cluster and what runs in it when the demo ends
    #[arg(long)]
    keep: bool,
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cargo profile of Podward's services, the demo server and its client
    #[arg(long, value_name = "NAME", default_value = "bench-lite")]
    profile: String,
    /// Number of repetitions
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,
}

impl CloneSetDemoCommand {
    pub(super) async fn run(self) -> Result<ExitCode> {
        prepare::test_cluster(&Part::ALL, true).await?;
        let Self { keep, json, profile, runs } = self;
        cloneset::run(demo::Demo { keep, json, profile, runs, ..demo::Demo::default() }).await?;
        Ok(ExitCode::SUCCESS)
    }
}
