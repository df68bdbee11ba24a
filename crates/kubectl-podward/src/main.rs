//! `kubectl podward`: a plugin of kubectl. kubectl finds it by the name of the program.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use kubectl_podward::{PluginArgs, run};

fn main() -> anyhow::Result<ExitCode> {
    // This must come before the first TLS configuration: otherwise the first crate that makes one chooses the provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before main"))?;
    Ok(run(PluginArgs::parse()))
}
