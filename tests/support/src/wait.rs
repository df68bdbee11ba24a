//! Waits with a deadline.

use std::time::Duration;

use anyhow::{Result, anyhow};

/// The limit for everything that should happen by itself. It is long, because only a failure uses it up. After an outage of
/// the API server, the kubelet and the controllers of Kubernetes wait up to a minute before they watch again.
pub const WAIT: Duration = Duration::from_secs(120);

/// Waits until `holds` returns true, of something that nothing can be awaited for, such as a metric.
///
/// # Errors
/// Fails with what was waited for if it takes longer than `deadline`.
pub async fn eventually(
    deadline: Duration,
    what: impl FnOnce() -> String,
    mut holds: impl FnMut() -> bool,
) -> Result<()> {
    let work = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    within(deadline, what, work).await
}

/// Returns the result of `work`.
///
/// # Errors
/// Returns the error of `work`. Fails with what was waited for if it takes longer than `deadline`.
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
