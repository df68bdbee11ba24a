//! Events about pods that were deleted or evicted although they could not be, or were not to be, let go of first.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use podward_core::Pod;
use podward_core::hold::Reason;
use tokio::sync::Semaphore;

use super::metrics::Metrics;

/// Events on their way at the same time; what is more is counted and dropped, for the log has it too.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// `note` may have 1 kB (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1000;

/// Sends events beside the answers, which don't wait for them.
pub(crate) struct Events {
    recorder: Recorder,
    room: Arc<Semaphore>,
    metrics: Metrics,
}

impl Events {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        let reporter = Reporter { controller: "podward.io/validating-webhook".to_owned(), instance: None };
        Self { recorder: Recorder::new(client, reporter), room: Arc::new(Semaphore::new(AT_ONCE)), metrics }
    }

    /// Tells of `pod` that it was let through for `reason`.
    pub(crate) fn not_held(&self, pod: &Pod, namespace: &str, reason: Reason, words: &str) {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            self.metrics.dropped_event();
            return;
        };
        let mut note = words.to_owned();
        note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        let event = Event {
            type_: EventType::Warning,
            reason: if reason == Reason::BreakGlass { "BreakGlass" } else { "NotHeld" }.to_owned(),
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
            let _room = room;
            match tokio::time::timeout(PATIENCE, recorder.publish(&event, &regarding)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%error, reason = event.reason, "could not send an event"),
                Err(_) => tracing::warn!(reason = event.reason, "no answer when sending an event"),
            }
            metrics.dropped_event();
        });
    }
}
