//! `cargo xtask`: the one task runner. Every command is a file in `commands/`; `cargo xtask help` lists them.

mod commands;
mod console;
mod prepare;
mod registry;
mod sbom;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    console::start_logging();
    let outcome = match console::install_tls_provider() {
        Ok(()) => commands::Cli::parse().run().await,
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| console::failure(&error))
}
