//! `cargo xtask fuzz`: random inputs for everything that reads what others have written.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use podward_images::{build_program, workspace_dir};
use tokio::process::Command;

use crate::console;

/// The cargo profile: an overflow of a number is a panic.
const PROFILE: &str = "dev";
/// The same, optimized.
const OPTIMIZED: &str = "fuzz";
/// The time that `cargo xtask ci` takes for it, in seconds.
const CI_SECONDS: &str = "60";

/// Fuzz what Podward reads from others: reviews, answers of webhooks, gRPC messages, pods, resources.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Fuzz {
    /// Build it with optimization, which takes minutes and pays off for long runs
    #[arg(long)]
    optimized: bool,
    /// Arguments of the fuzzer; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Fuzz {
    /// Returns the run of continuous integration.
    pub(crate) fn of_ci() -> Self {
        Self { optimized: false, arguments: vec!["--seconds".to_owned(), CI_SECONDS.to_owned()] }
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let program = build_program("podward-fuzz", if self.optimized { OPTIMIZED } else { PROFILE }).await?;
        let mut command = Command::new(program);
        let status =
            console::run(command.args(self.arguments).current_dir(workspace_dir()), "podward-fuzz").await?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
