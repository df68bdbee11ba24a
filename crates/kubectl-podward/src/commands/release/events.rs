//! Events about what was removed from a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use podward_core::release::Release;
use podward_runtime::retry::api_call;

/// The maximum size of `note` in bytes (events.k8s.io/v1).
const MAX_NOTE_BYTES: usize = 1000;
/// The maximum length of a name (RFC 1123 subdomain).
const MAX_NAME_BYTES: usize = 253;

/// Writes events about deletion requests and operations of `pod` that Podward no longer completes. A failure is not an
/// error: it is only printed to the standard error.
pub(super) async fn record(client: &Client, pod: &Pod, release: &Release) {
    let api: Api<Event> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    for (reason, note) in notes(release) {
        let event = event(pod, reason, note);
        if let Err(error) = api_call(api.create(&PostParams::default(), &event)).await {
            eprintln!("could not write the event {reason} of pod {}: {error}", pod.name_any());
        }
    }
}

fn notes(release: &Release) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let Some(dropped) = &release.dropped_request {
        let what = match &dropped.request {
            Some(request) => format!("the {} that {} requested", request.kind.noun(), request.requested_by),
            None => "the requested deletion".to_owned(),
        };
        let note = format!(
            "Podward releases its pods: {what} is cancelled; the pod stays until it is deleted again"
        );
        notes.push(("DeletionCancelled", note));
    }
    if !release.interrupted.is_empty() {
        let note = format!(
            "Podward releases its pods: the permission of operation {} is withdrawn, and the pod receives \
             traffic again",
            release.interrupted.join(", ")
        );
        notes.push(("OperationInterrupted", note));
    }
    notes
}

fn event(pod: &Pod, reason: &str, mut note: String) -> Event {
    note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
    let now = Timestamp::now();
    Event {
        metadata: ObjectMeta {
            name: Some(unique_name(&pod.name_any(), reason, now)),
            namespace: pod.namespace(),
            ..ObjectMeta::default()
        },
        action: Some("Release".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note),
        reason: Some(reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            namespace: pod.namespace(),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("podward.io/kubectl-podward".to_owned()),
        reporting_instance: Some("kubectl-podward".to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    }
}

/// Returns the name `<pod>.<time in hex><length of the reason>`, similar to the names of client-go. It is unique,
/// because the reasons differ in length and a pod has at most one event of a reason in a nanosecond.
fn unique_name(pod: &str, reason: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}{}", now.as_nanosecond(), reason.len());
    let prefix = &pod[..pod.floor_char_boundary(MAX_NAME_BYTES - suffix.len())];
    format!("{}{suffix}", prefix.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use podward_core::UnixNanos;
    use podward_core::deletion::request::{DeletionKind, DeletionRequest};
    use podward_core::release::DroppedRequest;

    use super::*;

    #[test]
    fn cancelled_work_is_recorded() {
        assert!(notes(&Release::default()).is_empty());
        let request = DeletionRequest::new(DeletionKind::Evict, "jane", UnixNanos(7));
        let release = Release {
            dropped_request: Some(DroppedRequest { request: Some(request) }),
            interrupted: vec!["upgrade".to_owned()],
            ..Release::default()
        };
        let notes = notes(&release);
        assert_eq!(notes[0].0, "DeletionCancelled");
        assert!(notes[0].1.contains("the eviction that jane requested is cancelled"), "{}", notes[0].1);
        assert!(notes[1].1.contains("operation upgrade"), "{}", notes[1].1);
    }

    #[test]
    fn names_fit_and_differ() {
        let now = Timestamp::now();
        let long = "a".repeat(253);
        let names =
            ["DeletionCancelled", "OperationInterrupted"].map(|reason| unique_name(&long, reason, now));
        assert!(names.iter().all(|name| name.len() <= MAX_NAME_BYTES));
        assert_ne!(names[0], names[1]);
    }
}
