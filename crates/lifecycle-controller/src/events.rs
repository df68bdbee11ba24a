//! Kubernetes Events about pods and rule objects, sent beside the work and never in its way.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::cached_pod::CachedPod;
use crate::metrics::{Metrics, WriteKind};

/// Enough for every pod of a large node pool to say something at once; beyond that events are dropped and counted, for the
/// state itself is on the pods.
const QUEUE: usize = 4096;
/// Events in flight at once: they must not crowd out the writes that move operations on.
const AT_ONCE: usize = 4;
const DEADLINE: Duration = Duration::from_secs(10);
/// `note` may have 1 kB (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1000;

/// Names may have 253 characters (RFC 1123 subdomain).
const NAME_LIMIT: usize = 253;

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) reason: &'static str,
    pub(crate) note: String,
}

/// Where events go.
#[derive(Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    instance: Arc<str>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// A queue, and the task that empties it; the task ends when the last sender is dropped.
    pub(crate) fn start(client: Client, instance: &str, metrics: Arc<Metrics>) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        tokio::spawn(send_all(client, events, metrics.clone()));
        Events { queue, instance: instance.into(), metrics }
    }

    pub(crate) fn normal(&self, pod: &CachedPod, draft: Draft) {
        self.push(reference(pod), "Normal", draft.reason, draft.note);
    }

    pub(crate) fn warning(&self, pod: &CachedPod, reason: &str, note: String) {
        self.warning_about(reference(pod), reason, note);
    }

    /// A warning about any object that has a namespace.
    pub(crate) fn warning_about(&self, object: ObjectReference, reason: &str, note: String) {
        self.push(object, "Warning", reason, note);
    }

    fn push(&self, regarding: ObjectReference, type_: &str, reason: &str, mut note: String) {
        if note.len() > NOTE_LIMIT {
            note.truncate(note.floor_char_boundary(NOTE_LIMIT));
        }
        let event = Event {
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
            reporting_controller: Some("podward.io/lifecycle-controller".to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            type_: Some(type_.to_owned()),
            ..Event::default()
        };
        if self.queue.try_send(event).is_err() {
            self.metrics.dropped_event();
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

/// `<object>.<time in hex>`, as client-go names events. A generated name can't do: its prefix may not end in a dot, and with a dash
/// it could be cut short.
fn unique_name(object: &str) -> String {
    let suffix = format!(".{:x}{:04x}", jiff::Timestamp::now().as_nanosecond(), fastrand::u16(..));
    let prefix = &object[..object.floor_char_boundary(NAME_LIMIT - suffix.len())];
    format!("{}{suffix}", prefix.trim_end_matches(['.', '-']))
}

async fn send_all(client: Client, mut events: mpsc::Receiver<Event>, metrics: Arc<Metrics>) {
    let stream = futures::stream::poll_fn(move |context| events.poll_recv(context));
    stream
        .for_each_concurrent(AT_ONCE, |event| {
            let api: Api<Event> =
                Api::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default());
            let metrics = metrics.clone();
            async move {
                metrics.wrote(WriteKind::Event);
                match tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), &event)).await {
                    Ok(Ok(_)) => return,
                    Ok(Err(error)) => {
                        tracing::warn!(%error, reason = event.reason, "could not send an event")
                    }
                    Err(_) => tracing::warn!(reason = event.reason, "no answer when sending an event"),
                }
                metrics.dropped_event();
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
