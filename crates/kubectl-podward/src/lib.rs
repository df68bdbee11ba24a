//! What people do with Podward from a command line, and what the Helm chart's jobs do in a cluster.
//!
//! Answers are on the standard output; how it goes, on the standard error.
#![forbid(unsafe_code)]

mod args;
mod commands;

use std::process::ExitCode;

use anyhow::{Context, Result};

pub use crate::args::Args;

/// Does what the command line says. A command that found something to be wrong ends with a failure without an error.
///
/// # Errors
/// When it could not be done; the text says what was tried, and on which object.
pub fn run(args: Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start a runtime")?.block_on(args.run())
}
