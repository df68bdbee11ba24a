//! Workers whose tasks take a minute and must not be interrupted, and their queue. A worker marks its pod as busy
//! before it takes a task, and takes no task while an operation on the pod waits.

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
    // Libraries panic without a default provider. This cannot fail, because there is no other one.
    drop(rustls::crypto::ring::default_provider().install_default());
    match Args::parse().role {
        Role::Queue { bind } => server::serve(bind).await,
        Role::Work(options) => worker::work(options).await,
    }
}
