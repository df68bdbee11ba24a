//! The cloneset-controller of Podward.

use anyhow::anyhow;
use clap::Parser;
use cloneset_controller::{Args, run};

fn main() -> anyhow::Result<()> {
    // Before anything makes a TLS configuration: whichever crate came first would choose the provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before main"))?;
    run(Args::parse())
}
