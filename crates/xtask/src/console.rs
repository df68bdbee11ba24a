//! What every command shares: logging, the way failures are printed, and child processes on the same terminal.

use std::process::{ExitCode, ExitStatus};

use anyhow::{Context, Result, anyhow};
use tokio::process::Command;
use tracing_subscriber::EnvFilter;

/// Logs of libraries go to the standard error, by default only warnings.
pub(crate) fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// TLS clients take the process's default provider; without one the first of them would panic.
pub(crate) fn install_tls_provider() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))
}

/// Prints an error with all its causes, and gives the exit code for it.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

/// Runs `command` on this terminal to its end.
pub(crate) async fn run(command: &mut Command, what: &str) -> Result<ExitStatus> {
    command.status().await.with_context(|| format!("cannot start {what}"))
}
