//! Retries of requests to a registry.

use std::time::Duration;

use anyhow::{Error, Result};

/// The maximum number of attempts.
const MAX_ATTEMPTS: u32 = 4;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum AttemptFailure {
    /// A later attempt can succeed: the connection broke, or the registry is overloaded.
    Temporary(Error),
    /// A later attempt would fail too.
    Permanent(Error),
}

/// Runs `attempt` until it succeeds, and returns its result. The delay between two attempts grows by `pause` each time.
/// `what` completes the message "cannot ...".
///
/// # Errors
/// After a permanent failure, or after [`MAX_ATTEMPTS`] temporary failures.
pub(super) async fn attempts<T>(
    what: &str,
    pause: Duration,
    attempt: impl AsyncFn() -> Result<T, AttemptFailure>,
) -> Result<T> {
    let mut made = 0;
    loop {
        made += 1;
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(AttemptFailure::Temporary(_)) if made < MAX_ATTEMPTS => {
                tokio::time::sleep(pause * made).await
            }
            Err(AttemptFailure::Temporary(error)) => {
                return Err(error.context(format!("cannot {what}, in {made} attempts")));
            }
            Err(AttemptFailure::Permanent(error)) => return Err(error.context(format!("cannot {what}"))),
        }
    }
}
