//! `cargo xtask`: the task runner of this workspace. Each command is a file in `commands/`; `cargo xtask help` lists
//! them.

mod commands;
mod console;
mod import_cycles;
mod prepare;
mod registry;
mod sbom;
mod signing_key;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    console::start_logging();
    let exit_code = match console::install_tls_provider() {
        Ok(()) => commands::Cli::parse().run().await,
        Err(error) => Err(error),
    };
    exit_code.unwrap_or_else(|error| console::failure(&error))
}
