//! Waiting with a deadline.

use std::time::Duration;

use anyhow::{Result, anyhow};

/// How long anything may take that ought to happen by itself. Generous: it is only ever used up by a failure.
pub const WAIT: Duration = Duration::from_secs(60);

/// The result of `work`, or an error that says what was waited for and for how long.
///
/// # Errors
/// The error of `work`, or that it took longer than `deadline`.
pub async fn within<T>(
    deadline: Duration,
    what: impl FnOnce() -> String,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(anyhow!("waited {:.1} s in vain for {}", deadline.as_secs_f64(), what())),
    }
}
