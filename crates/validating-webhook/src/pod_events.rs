//! Events about writes and deletes of pods, sent in the background.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

/// The maximum number of events that are being sent. Further events are dropped and counted; the log contains them too.
const MAX_CONCURRENT_EVENTS: usize = 64;
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of `note` in bytes (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1000;

/// The maximum length of `action` in bytes (events.k8s.io/v1).
const ACTION_LIMIT: usize = 128;

/// The pod of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventPod<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// Sends events in the background, so that responses do not wait for them. Clones share the limit.
#[derive(Clone)]
pub(crate) struct PodEvents {
    recorder: Recorder,
    permits: Arc<Semaphore>,
    dropped: Counter,
}

impl PodEvents {
    /// Returns a sender that uses `client`. Registers its metric.
    pub(crate) fn new(client: Client, registry: &mut Registry) -> Self {
        let reporter = Reporter { controller: "podward.io/validating-webhook".to_owned(), instance: None };
        let dropped = Counter::default();
        registry.register(
            "events_dropped",
            "Events that were not sent, because too many were being sent or the API server refused them",
            dropped.clone(),
        );
        Self {
            recorder: Recorder::new(client, reporter),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_EVENTS)),
            dropped,
        }
    }

    /// Sends a warning about `pod` with the name of the user, and what the user did (`Update` or `Delete`). `note` is cut
    /// if it is too long. Events with the same pod, reason, action and user within 6 minutes are stored as one, with the
    /// first note.
    pub(crate) fn warn(
        &self,
        pod: EventPod<'_>,
        reason: &'static str,
        (action, user): (&str, &str),
        note: &str,
    ) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.dropped.inc();
            return;
        };
        let mut note = note.to_owned();
        note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: action_of(action, user),
            secondary: None,
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.to_owned()),
            namespace: Some(pod.namespace.to_owned()),
            uid: Some(pod.uid.to_owned()),
            ..ObjectReference::default()
        };
        let (recorder, dropped) = (self.recorder.clone(), self.dropped.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(SEND_TIMEOUT, recorder.publish(&event, &regarding)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%error, reason, "could not send an event"),
                Err(_) => tracing::warn!(reason, "could not send an event: no response in time"),
            }
            dropped.inc();
        });
    }
}

/// Returns the action of an event. It names the user, because the `Recorder` drops the note of a second event with the
/// same action. Of a long name it has the end, which differs between service accounts.
fn action_of(action: &str, user: &str) -> String {
    let mut start = user.len().saturating_sub(ACTION_LIMIT.saturating_sub(action.len() + " by ".len()));
    while !user.is_char_boundary(start) {
        start += 1;
    }
    format!("{action} by {}", user.get(start..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_names_the_user_and_has_a_limit() {
        assert_eq!(action_of("Update", "jane"), "Update by jane");
        let long = format!("{}é{}-end", "x".repeat(200), "y".repeat(113));
        let action = action_of("Update", &long);
        assert!(action.len() <= ACTION_LIMIT && action.ends_with("-end"), "{action}");
    }
}
