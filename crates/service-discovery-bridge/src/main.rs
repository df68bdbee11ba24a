//! The service-discovery-bridge of Podward.

use anyhow::anyhow;
use clap::Parser;
use service_discovery_bridge::{Args, run};

fn main() -> anyhow::Result<()> {
    // This must run before any TLS configuration is created. Otherwise the first crate that creates one selects the
    // provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before main"))?;
    run(Args::parse())
}
