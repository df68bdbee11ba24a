//! The command line.

use std::{net::SocketAddr, time::Duration};

use clap::{Parser, Subcommand};

/// An example for Podward: workers that are not interrupted, and their queue
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Role,
}

/// What the program is.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// The queue, in memory
    Queue {
        /// Where it is reached
        #[arg(long, default_value = "0.0.0.0:8080")]
        bind: SocketAddr,
    },
    /// A worker
    Work(Options),
}

/// How a worker works.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The queue's `HOST:PORT`
    #[arg(long, env = "QUEUE")]
    pub(crate) queue: String,
    /// Seconds that a task takes
    #[arg(long, env = "TASK_SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) task: Duration,
    /// Seconds for which the worker says that it is busy; when half of them have passed it says so again
    #[arg(long, env = "BUSY_SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) busy: Duration,
    /// Seconds between two looks when there is nothing to do
    #[arg(long, env = "PAUSE_SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) pause: Duration,
    /// The namespace of this worker's pod
    #[arg(long, env = "POD_NAMESPACE")]
    pub(crate) namespace: String,
    /// The name of this worker's pod
    #[arg(long, env = "POD_NAME")]
    pub(crate) pod: String,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err(format!("{text} must be between 0.1 and 86400"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
