//! A hook server for Podward: it keeps a load balancer's backends, and answers when the balancer has let go of a pod or taken it in.

mod args;
mod balancer;
mod caller;
mod handler;
mod registration;
mod server;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // There is no other provider of cryptography, so this can't fail; libraries would panic without one.
    drop(rustls::crypto::ring::default_provider().install_default());
    server::run(args::Args::parse()).await
}
