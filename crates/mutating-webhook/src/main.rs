//! The mutating webhook of Podward.

use anyhow::anyhow;
use clap::Parser;
use mutating_webhook::Args;

fn main() -> anyhow::Result<()> {
    // Before anything makes a TLS configuration: whichever crate came first would choose the provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before main"))?;
    Args::parse().run()
}
