//! `kubectl podward`: a plugin of kubectl, which finds it by its name.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use kubectl_podward::{Args, run};

fn main() -> anyhow::Result<ExitCode> {
    // Before anything makes a TLS configuration: whichever crate came first would choose the provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before main"))?;
    run(Args::parse())
}
