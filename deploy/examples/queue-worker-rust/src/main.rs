//! Workers of a queue whose tasks take a minute and must not be interrupted, under Podward: a worker says that its pod is busy before
//! it takes a task, and takes none while somebody wants to operate the pod. And a queue for them, which keeps account.

mod args;
mod busy;
mod client;
mod queue;
mod server;
mod worker;

use args::{Args, Role};
use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // There is no other provider of cryptography, so this can't fail; libraries would panic without one.
    drop(rustls::crypto::ring::default_provider().install_default());
    match Args::parse().role {
        Role::Queue { bind } => server::serve(bind).await,
        Role::Work(options) => worker::work(options).await,
    }
}
