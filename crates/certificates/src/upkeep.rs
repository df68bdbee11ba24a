//! The loop of a manager: reconcile when objects change, at the next due time, and again after an error.

use std::fmt::Display;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio_util::sync::CancellationToken;

/// The longest time between two reconciliations, in case a watch missed a change.
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// What keeps objects up to date.
pub(crate) trait Upkeep {
    /// A change of one of the objects.
    type Change;
    /// The reason why an object could not be brought up to date.
    type Error: Display;
    /// What is kept up to date, for the log.
    const WHAT: &str;
    /// What holds while an object cannot be brought up to date, for the log.
    const MEANWHILE: &str;

    /// Remembers a change.
    fn apply(&mut self, change: Self::Change);
    /// Returns true if the watches have reported each object, or its absence.
    fn knows_all(&self) -> bool;
    /// Brings all objects up to date. Returns the time until the next reconciliation. A write also updates the known
    /// objects at once, so that the next reconciliation does not repeat it.
    async fn reconcile(&mut self) -> Result<Duration, Self::Error>;
    /// Returns true if the object was written by another client first. The watch delivers the change.
    fn is_conflict(error: &Self::Error) -> bool;
}

/// Keeps the objects of `upkeep` up to date until `stop`.
pub(crate) async fn keep_up<U: Upkeep>(
    mut upkeep: U,
    mut changes: impl Stream<Item = U::Change> + Unpin,
    stop: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let wake = if upkeep.knows_all() { attempt(&mut upkeep, &mut failures).await } else { MAX_INTERVAL };
        tokio::select! {
            () = stop.cancelled() => return,
            Some(change) = changes.next() => upkeep.apply(change),
            () = tokio::time::sleep(wake) => {}
        }
        // Changes that arrive together need one reconciliation.
        while let Some(Some(change)) = changes.next().now_or_never() {
            upkeep.apply(change);
        }
    }
}

/// Reconciles once, and returns the time until the next reconciliation.
async fn attempt<U: Upkeep>(upkeep: &mut U, failures: &mut u32) -> Duration {
    match upkeep.reconcile().await {
        Ok(wake) => {
            if std::mem::take(failures) > 0 {
                tracing::info!("{}: up to date again", U::WHAT);
            }
            wake
        }
        Err(error) if U::is_conflict(&error) => {
            tracing::debug!("{}: another replica was first: {error}", U::WHAT);
            delay_after(API_SERVER, *failures + 1)
        }
        Err(error) => {
            *failures += 1;
            let wait = delay_after(API_SERVER, *failures);
            tracing::warn!("{}: {error}; trying again in {wait:?}; {}", U::WHAT, U::MEANWHILE);
            wait
        }
    }
}
