//! Keeps a delete waiting until the pod is drained, so that the delete succeeds (`--wait`).

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::WatchEvent;
use podward_core::Pod;
use podward_core::deletion::request::DeletionKind;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::cluster_state::ClusterState;
use super::incoming_deletion::IncomingDeletion;

/// The maximum number of deletes that wait. Each has a watch of its own. Further deletes are answered immediately.
const MAX_CONCURRENT_WAITS: usize = 128;
/// The part of the API server's timeout that is reserved for the response.
const RESPONSE_RESERVE: Duration = Duration::from_millis(100);

/// The end of a wait.
pub(super) enum WaitEnd<T> {
    /// The check succeeded.
    Checked(T),
    /// The pod is deleted.
    Gone,
}

/// Selects the deletes that wait, and limits their number and their time.
pub(super) struct DeleteWaiter {
    wait: Duration,
    permits: Semaphore,
    stop: CancellationToken,
}

impl DeleteWaiter {
    pub(super) fn new(wait: Duration, stop: CancellationToken) -> Self {
        Self { wait, permits: Semaphore::new(MAX_CONCURRENT_WAITS), stop }
    }

    /// Returns true for a delete by a person or a tool. Callers retry evictions themselves, and the controllers of the
    /// cluster must not be blocked by one pod.
    pub(super) fn applies_to(&self, deletion: IncomingDeletion<'_>) -> bool {
        const SYSTEM: [&str; 3] = ["system:serviceaccount:kube-system:", "system:kube-", "system:node:"];
        !self.wait.is_zero()
            && deletion.kind == DeletionKind::Delete
            && !SYSTEM.iter().any(|prefix| deletion.user.starts_with(prefix))
    }

    /// Returns the permit for a wait. Returns `None` if too many deletes are waiting.
    pub(super) fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Waits until `check` returns a value for a version of `pod`, or until the pod is deleted. Returns `None` if this
    /// does not happen before `deadline` or the configured time, or if the process stops.
    pub(super) async fn wait<T>(
        &self,
        _permit: SemaphorePermit<'_>,
        cluster: &ClusterState,
        pod: &Pod,
        namespace: &str,
        deadline: Instant,
        check: impl Fn(&Pod) -> Option<T>,
    ) -> Option<WaitEnd<T>> {
        let end = deadline.checked_sub(RESPONSE_RESERVE)?.min(Instant::now() + self.wait);
        tokio::select! {
            // The caller retries at another replica.
            () = self.stop.cancelled() => None,
            waited = tokio::time::timeout_at(end.into(), until_checked(cluster, pod, namespace, end, check)) => {
                waited.ok().flatten()
            }
        }
    }
}

async fn until_checked<T>(
    cluster: &ClusterState,
    pod: &Pod,
    namespace: &str,
    end: Instant,
    check: impl Fn(&Pod) -> Option<T>,
) -> Option<WaitEnd<T>> {
    let (name, uid) = (&pod.metadata.name, &pod.metadata.uid);
    let seconds = u32::try_from(end.saturating_duration_since(Instant::now()).as_secs()).unwrap_or(u32::MAX);
    let watch = match cluster.watch_pod(namespace, name, seconds.saturating_add(1)).await {
        Ok(watch) => watch,
        Err(error) => {
            tracing::warn!(pod = name, %error, "could not watch a pod whose delete waits; answering immediately");
            return None;
        }
    };
    // The watch sends no event for a pod that was deleted before it began.
    let read = async {
        match cluster.pod(namespace, name, end).await {
            Ok(found) if found.as_ref().is_none_or(|found| found.metadata.uid != *uid) => {}
            Ok(_) | Err(_) => std::future::pending().await,
        }
    };
    let follow = async {
        let mut watch = pin!(watch);
        while let Some(Ok(event)) = watch.next().await {
            match event {
                WatchEvent::Added(now) | WatchEvent::Modified(now) if now.metadata.uid == *uid => {
                    if let Some(checked) = check(&now) {
                        return Some(WaitEnd::Checked(checked));
                    }
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => return None,
                // The pod is deleted. There may be another pod with its name.
                _ => return Some(WaitEnd::Gone),
            }
        }
        None
    };
    tokio::select! {
        end = follow => end,
        () = read => Some(WaitEnd::Gone),
    }
}
