//! `kubectl podward`: the command line of Podward. The Helm chart's jobs use it too.
//!
//! Results go to the standard output, progress to the standard error.
#![forbid(unsafe_code)]

mod api;
#[cfg(test)]
mod api_server;
mod args;
mod clock;
mod commands;
mod gather;
mod kubectl_args;
mod lifecycle_message;
mod object_target;
mod operation;
mod output;
mod parsed;
mod terminal;
mod workload;
mod workload_kind;

use std::process::ExitCode;

use anyhow::{Context, Result};

pub use crate::args::PluginArgs;

/// Runs the command of `args` and returns its exit code. A command that reports a problem returns a failure without an
/// error.
///
/// # Errors
/// When the command cannot be run. The error says what was being done, and to which object.
pub fn run(args: PluginArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start a runtime")?.block_on(args.run())
}
