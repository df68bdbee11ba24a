//! Clients of a Service that count the requests it loses: a fixed number of requests a second, counted, timed, and
//! reported over HTTP. They use the address of the Service, or the instances that a registry shows.
//!
//! | control path | response |
//! |---|---|
//! | `/report` | the [`ClientReport`] so far, as JSON |
//! | `/stop` | ends the load, waits for the pending requests, and returns the last report |
//!
//! The load is *open-loop*: requests are due at fixed times, whether earlier ones have been answered or not, like
//! those of independent users. Everything runs on one thread, because the measured system runs on the same machine.
#![forbid(unsafe_code)]

mod args;
mod control;
mod exchange;
mod load;
mod pool;
mod registry;
mod report;
mod tally;
mod targets;

pub use args::ClientArgs;
pub use registry::RegistryKind;
pub use report::{ClientReport, Connections, DiscoveryReport, LoadReport, LoadSecond, RequestFailure};

/// Runs the load until it is stopped over the control port, by SIGTERM, or by its time limit.
///
/// # Errors
/// Fails if the control port cannot be opened, or the registry is unusable.
pub async fn run(args: ClientArgs) -> std::io::Result<()> {
    control::run(args).await
}
