//! Shared by all commands: logging, printing of errors, and child processes on the same terminal.

use std::process::{ExitCode, ExitStatus};

use anyhow::{Context, Result, anyhow};
use tokio::process::Command;
use tracing_subscriber::EnvFilter;

/// Writes logs of libraries to the standard error. `RUST_LOG` sets the filter; without it, only warnings are logged.
pub(crate) fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// Installs the process's default TLS provider. Without one, the first TLS client would panic.
///
/// # Errors
/// When another provider is already installed.
pub(crate) fn install_tls_provider() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))
}

/// Prints an error with all its causes and returns the exit code for it.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

/// Runs `command` on this terminal and returns its exit status. `what` names it in the error.
///
/// # Errors
/// When it cannot be started.
pub(crate) async fn run(command: &mut Command, what: &str) -> Result<ExitStatus> {
    command.status().await.with_context(|| format!("cannot start {what}"))
}
