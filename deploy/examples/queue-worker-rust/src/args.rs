//! The command line.

use std::{net::SocketAddr, time::Duration};

use clap::{Parser, Subcommand};

/// An example for Podward: workers that are not interrupted, and their queue
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Role,
}

/// The part that the program plays.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// The queue, in memory
    Queue {
        /// The address that the queue listens on
        #[arg(long, default_value = "0.0.0.0:8080")]
        bind: SocketAddr,
    },
    /// A worker
    Work(Options),
}

/// The options of a worker.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The `HOST:PORT` of the queue
    #[arg(long, env = "QUEUE")]
    pub(crate) queue: String,
    /// The duration of a task, in seconds
    #[arg(long, env = "TASK_SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) task: Duration,
    /// The time for which the worker marks its pod as busy, in seconds. It extends the mark when half of it has
    /// passed
    #[arg(long, env = "BUSY_SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) busy: Duration,
    /// The delay between checks for new tasks, in seconds
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
