//! A delete that waits for its pod to be let go of, so that it can be answered with success (`--wait`).

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::WatchEvent;
use podward_core::Pod;
use podward_core::wish::DeletionKind;
use podward_runtime::admission::AdmissionResponse;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::cluster::Surroundings;
use super::{Asked, Inner};

/// Deletes that wait at the same time, each with a watch of its own. One more is answered at once.
const AT_ONCE: usize = 128;
/// What is left of the time that the API server allows, to answer in.
const RESERVE: Duration = Duration::from_millis(100);

/// Who may wait, and how long.
pub(super) struct Patience {
    wait: Duration,
    room: Semaphore,
    stop: CancellationToken,
}

impl Patience {
    pub(super) fn new(wait: Duration, stop: CancellationToken) -> Self {
        Self { wait, room: Semaphore::new(AT_ONCE), stop }
    }

    /// People and their tools wait for a delete. Evictions are tried again by whoever makes them, and the cluster's own controllers
    /// have more to do than to wait for one pod.
    pub(super) fn is_for(&self, asked: Asked<'_>) -> bool {
        const SYSTEM: [&str; 3] = ["system:serviceaccount:kube-system:", "system:kube-", "system:node:"];
        !self.wait.is_zero()
            && asked.kind == DeletionKind::Delete
            && !SYSTEM.iter().any(|prefix| asked.user.starts_with(prefix))
    }
}

impl Inner {
    /// Waits until the delete may go on. `None` when it may not in the time that there is.
    pub(super) async fn wait(
        &self,
        pod: &Pod,
        asked: Asked<'_>,
        known: Surroundings,
        deadline: Instant,
    ) -> Option<AdmissionResponse> {
        let _room = self.patience.room.try_acquire().ok()?;
        let start = Instant::now();
        let end = deadline.checked_sub(RESERVE)?.min(start + self.patience.wait);
        let waited = tokio::select! {
            // The process is to stop: whoever waits is better served by the replica that it comes to next.
            () = self.patience.stop.cancelled() => None,
            waited = tokio::time::timeout_at(end.into(), self.until_let_go(pod, asked, known, end)) => waited.ok(),
        };
        self.metrics.waited(start.elapsed());
        waited.flatten()
    }

    async fn until_let_go(
        &self,
        pod: &Pod,
        asked: Asked<'_>,
        known: Surroundings,
        end: Instant,
    ) -> Option<AdmissionResponse> {
        let name = &pod.metadata.name;
        let seconds =
            u32::try_from(end.saturating_duration_since(Instant::now()).as_secs()).unwrap_or(u32::MAX);
        let watch = match self.cluster.watch_pod(asked.namespace, name, seconds.saturating_add(1)).await {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!(pod = name, %error, "could not watch a pod whose delete waits; it is answered without");
                return None;
            }
        };
        // A pod that was gone before the watch began makes no event.
        let look = async {
            match self.cluster.pod(asked.namespace, name, end).await {
                Ok(found) if found.as_ref().is_none_or(|found| found.metadata.uid != pod.metadata.uid) => {}
                Ok(_) | Err(_) => std::future::pending().await,
            }
        };
        let follow = async {
            let mut watch = pin!(watch);
            while let Some(Ok(event)) = watch.next().await {
                match event {
                    WatchEvent::Added(now) | WatchEvent::Modified(now)
                        if now.metadata.uid == pod.metadata.uid =>
                    {
                        if let Some(response) = self.verdict(&now, asked, known) {
                            return Some(response);
                        }
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => return None,
                    // Gone, and perhaps another of its name there.
                    _ => return Some(self.gone(asked)),
                }
            }
            None
        };
        tokio::select! {
            response = follow => response,
            () = look => Some(self.gone(asked)),
        }
    }

    /// The pod is gone: what is left to say is the API server's.
    fn gone(&self, asked: Asked<'_>) -> AdmissionResponse {
        self.metrics.gone(asked.kind);
        AdmissionResponse::allow()
    }
}
