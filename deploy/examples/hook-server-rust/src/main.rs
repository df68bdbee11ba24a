//! A hook server for Podward. It removes pods from the backends of a load balancer, and adds them.

mod args;
mod balancer;
mod caller;
mod handler;
mod registration;
mod server;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Libraries panic without a default provider. This cannot fail, because there is no other one.
    drop(rustls::crypto::ring::default_provider().install_default());
    server::run(args::Args::parse()).await
}
