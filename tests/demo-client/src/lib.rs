//! Clients of a Service, to see what it loses: so many requests a second whatever becomes of them, counted, timed, and reported
//! over HTTP.
//!
//! | control path | answer |
//! |---|---|
//! | `/report` | the [`Report`] so far, as JSON |
//! | `/stop` | ends the load, waits for the requests that are under way, and answers with the last report |
//!
//! The load is *open-loop*: a request is due every so often, whether the ones before it have been answered or not, as with
//! users who know nothing of each other. Everything runs on one thread, since what is measured runs on the same machine.
#![forbid(unsafe_code)]

mod args;
mod control;
mod exchange;
mod load;
mod pool;
mod report;
mod tally;

pub use args::Args;
pub use report::{Connections, Failure, LoadReport, Report, Second};

/// Runs the load until it is stopped over the control port, by SIGTERM, or by its own time limit.
///
/// # Errors
/// When the control port can't be had.
pub async fn run(args: Args) -> std::io::Result<()> {
    control::run(args).await
}
