//! Trying again what may work a moment later.

use std::time::Duration;

use anyhow::{Error, Result};

/// How often something is tried.
const ATTEMPTS: u32 = 4;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// In a way that may pass: the connection broke, or the registry has trouble.
    Passing(Error),
    /// It would fail again.
    Lasting(Error),
}

/// Does `attempt` until it works, fails for good or has been done often enough. `what` continues the words "cannot ...".
pub(super) async fn attempts<T>(
    what: &str,
    pause: Duration,
    attempt: impl AsyncFn() -> Result<T, Failure>,
) -> Result<T> {
    let mut made = 0;
    loop {
        made += 1;
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(Failure::Passing(_)) if made < ATTEMPTS => tokio::time::sleep(pause * made).await,
            Err(Failure::Passing(error)) => {
                return Err(error.context(format!("cannot {what}, in {made} attempts")));
            }
            Err(Failure::Lasting(error)) => return Err(error.context(format!("cannot {what}"))),
        }
    }
}
