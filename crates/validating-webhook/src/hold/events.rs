//! Events about pods that were deleted or evicted without being drained.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use podward_core::Pod;
use podward_core::deletion::hold::AllowReason;
use tokio::sync::Semaphore;

use super::metrics::HoldMetrics;

/// The maximum number of events that are being sent. Further events are dropped and counted; the log contains them too.
const MAX_CONCURRENT_EVENTS: usize = 64;
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of `note` in bytes (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1000;

/// Sends events in the background, so that responses do not wait for them.
pub(super) struct HoldEvents {
    recorder: Recorder,
    permits: Arc<Semaphore>,
    metrics: HoldMetrics,
}

impl HoldEvents {
    pub(super) fn new(client: Client, metrics: HoldMetrics) -> Self {
        let reporter = Reporter { controller: "podward.io/validating-webhook".to_owned(), instance: None };
        Self {
            recorder: Recorder::new(client, reporter),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_EVENTS)),
            metrics,
        }
    }

    /// Sends an event that the deletion of `pod` was allowed for `reason`.
    pub(super) fn not_held(&self, pod: &Pod, namespace: &str, reason: AllowReason, words: &str) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.metrics.count_dropped_event();
            return;
        };
        let mut note = words.to_owned();
        note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        let event = Event {
            type_: EventType::Warning,
            reason: if reason == AllowReason::BreakGlass { "BreakGlass" } else { "NotHeld" }.to_owned(),
            note: Some(note),
            action: "Delete".to_owned(),
            secondary: None,
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.metadata.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: Some(pod.metadata.uid.clone()),
            ..ObjectReference::default()
        };
        let (recorder, metrics) = (self.recorder.clone(), self.metrics.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(SEND_TIMEOUT, recorder.publish(&event, &regarding)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%error, reason = event.reason, "could not send an event"),
                Err(_) => {
                    tracing::warn!(reason = event.reason, "could not send an event: no response in time")
                }
            }
            metrics.count_dropped_event();
        });
    }
}
