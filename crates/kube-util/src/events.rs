//! Kubernetes Events about pods and other objects.
//!
//! Events are sent by a task of their own, so that they never delay a reconciliation. kube's `Recorder` is not used: it
//! takes two events of the same object and reason for one and drops the note of the second, and it fails for objects
//! with long names.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use podward_core::keys::HISTORY;
use podward_runtime::retry::api_call;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use crate::cached_pod::CachedPod;

/// Enough for one event of every pod of a large node pool. Events beyond that are dropped and counted: the state of a
/// pod is stored on the pod itself.
const QUEUE_SIZE: usize = 4096;
/// Limits the requests for events, which must not delay the writes of reconciliations.
const MAX_CONCURRENT_REQUESTS: usize = 4;
/// The limit of `note`, in bytes (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1000;

/// The limit of a name, in characters (RFC 1123 subdomain).
const NAME_LIMIT: usize = 253;

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The text for people, cut to 1,000 bytes.
    pub note: String,
}

/// The counters of events. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct EventMetrics {
    /// Requests that were sent.
    pub sent: Counter,
    /// Events that were not stored: the queue was full, or the request failed.
    pub dropped: Counter,
}

impl EventMetrics {
    /// Adds the number of dropped events to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "events_dropped",
            "Events that were not stored, because the queue was full or the request failed",
            self.dropped.clone(),
        );
    }
}

/// The queue of events. Clones share it.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Event>,
    /// The `reportingController`.
    controller: Arc<str>,
    instance: Arc<str>,
    metrics: EventMetrics,
}

impl Events {
    /// Starts the task that sends events of `service`. It ends when the last clone is dropped. `instance` is the
    /// `reportingInstance`.
    pub fn start(client: Client, service: &str, instance: &str, metrics: EventMetrics) -> Self {
        let (queue, events) = mpsc::channel(QUEUE_SIZE);
        tokio::spawn(send_all(client, events, metrics.clone()));
        let controller = format!("podward.io/{service}").into();
        Events { queue, controller, instance: instance.into(), metrics }
    }

    /// Queues an event of type `Normal` about `pod`.
    pub fn normal(&self, pod: &CachedPod, draft: EventDraft) {
        self.push(self.event(reference(pod), "Normal", draft.reason, draft.note));
    }

    /// Queues an event of type `Normal` about the end of `pod`. It has `history` as annotation
    /// [`HISTORY`](podward_core::keys::HISTORY), and the controller of the pod as related object, so that the operations
    /// of a workload can be found after its pods are gone.
    pub fn deleted(&self, pod: &CachedPod, draft: EventDraft, history: String) {
        let mut event = self.event(reference(pod), "Normal", draft.reason, draft.note);
        event.metadata.annotations = Some([(HISTORY.to_owned(), history)].into());
        event.related = pod.controller().map(|owner| ObjectReference {
            api_version: Some(owner.api_version.clone()),
            kind: Some(owner.kind.clone()),
            name: Some(owner.name.clone()),
            namespace: Some(pod.key().namespace),
            uid: Some(owner.uid.clone()),
            ..ObjectReference::default()
        });
        self.push(event);
    }

    /// Queues an event of type `Warning` about `pod`.
    pub fn warning(&self, pod: &CachedPod, reason: &str, note: String) {
        self.warning_about(reference(pod), reason, note);
    }

    /// Queues an event of type `Warning` about a namespaced object.
    pub fn warning_about(&self, object: ObjectReference, reason: &str, note: String) {
        self.push(self.event(object, "Warning", reason, note));
    }

    /// Queues an event of type `Normal` about a namespaced object.
    pub fn normal_about(&self, object: ObjectReference, reason: &str, note: String) {
        self.push(self.event(object, "Normal", reason, note));
    }

    fn event(&self, regarding: ObjectReference, type_: &str, reason: &str, mut note: String) -> Event {
        if note.len() > NOTE_LIMIT {
            note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        }
        Event {
            metadata: ObjectMeta {
                name: Some(unique_name(regarding.name.as_deref().unwrap_or_default())),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            action: Some("Lifecycle".to_owned()),
            event_time: Some(MicroTime(jiff::Timestamp::now())),
            note: Some(note),
            reason: Some(reason.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(self.controller.to_string()),
            reporting_instance: Some(self.instance.to_string()),
            type_: Some(type_.to_owned()),
            ..Event::default()
        }
    }

    fn push(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

fn reference(pod: &CachedPod) -> ObjectReference {
    let key = pod.key();
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(key.name),
        namespace: Some(key.namespace),
        uid: Some(pod.uid().to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns `<object>.<time in hex>`, the form that client-go uses, with a random suffix. `generateName` is not usable:
/// its prefix must not end in a dot, and a prefix that ends in a dash can be truncated.
fn unique_name(object: &str) -> String {
    let suffix = format!(".{:x}{:04x}", jiff::Timestamp::now().as_nanosecond(), fastrand::u16(..));
    let prefix = &object[..object.floor_char_boundary(NAME_LIMIT - suffix.len())];
    format!("{}{suffix}", prefix.trim_end_matches(['.', '-']))
}

async fn send_all(client: Client, mut events: mpsc::Receiver<Event>, metrics: EventMetrics) {
    let stream = futures::stream::poll_fn(move |context| events.poll_recv(context));
    stream
        .for_each_concurrent(MAX_CONCURRENT_REQUESTS, |event| {
            let api: Api<Event> =
                Api::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default());
            let metrics = metrics.clone();
            async move {
                metrics.sent.inc();
                if let Err(error) = api_call(api.create(&PostParams::default(), &event)).await {
                    tracing::warn!(%error, reason = event.reason, "could not send an event");
                    metrics.dropped.inc();
                }
            }
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit() {
        assert_ne!(unique_name("web-0"), unique_name("web-0"));
        assert!(unique_name("web-0").starts_with("web-0."));
        let long = format!("{}-", "a".repeat(252));
        assert!(unique_name(&long).len() <= NAME_LIMIT);
    }
}
