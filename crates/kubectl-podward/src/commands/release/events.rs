//! Events that tell on a pod what it lost.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use podward_core::release::Release;

const ANSWER: Duration = Duration::from_secs(10);
/// `note` may have 1 kB (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1000;
/// Names may have 253 characters (RFC 1123 subdomain).
const NAME_LIMIT: usize = 253;

/// Says on `pod` what its people would wait for in vain now. Nothing hangs on it: what can't be said is said on the standard error.
pub(super) async fn tell(client: &Client, pod: &Pod, release: &Release) {
    let api: Api<Event> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    for (reason, note) in notes(release) {
        let event = event(pod, reason, note);
        let outcome = tokio::time::timeout(ANSWER, api.create(&PostParams::default(), &event)).await;
        let problem = match outcome {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer from the API server within {ANSWER:?}"),
        };
        eprintln!("could not write the event {reason} of pod {}: {problem}", pod.name_any());
    }
}

fn notes(release: &Release) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let Some(dropped) = &release.dropped_wish {
        let what = match &dropped.wish {
            Some(wish) => format!("the {} that {} asked for", wish.kind.noun(), wish.requested_by),
            None => "the deletion that was asked for".to_owned(),
        };
        let note = format!(
            "Podward lets go of its pods: {what} is not carried out; the pod lives on until it is deleted again"
        );
        notes.push(("DeletionCancelled", note));
    }
    if !release.interrupted.is_empty() {
        let note = format!(
            "Podward lets go of its pods: the permission of operation {} is withdrawn, and the pod is in service again",
            release.interrupted.join(", ")
        );
        notes.push(("OperationInterrupted", note));
    }
    notes
}

fn event(pod: &Pod, reason: &str, mut note: String) -> Event {
    note.truncate(note.floor_char_boundary(NOTE_LIMIT));
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

/// `<pod>.<time in hex>`, as client-go names events; one pod has at most one of a reason in a nanosecond.
fn unique_name(pod: &str, reason: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}{}", now.as_nanosecond(), reason.len());
    let prefix = &pod[..pod.floor_char_boundary(NAME_LIMIT - suffix.len())];
    format!("{}{suffix}", prefix.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use podward_core::UnixNanos;
    use podward_core::release::DroppedWish;
    use podward_core::wish::{DeletionKind, Wish};

    use super::*;

    #[test]
    fn people_learn_what_does_not_come() {
        assert!(notes(&Release::default()).is_empty());
        let wish = Wish::new(DeletionKind::Evict, "jane", UnixNanos(7));
        let release = Release {
            dropped_wish: Some(DroppedWish { wish: Some(wish) }),
            interrupted: vec!["upgrade".to_owned()],
            ..Release::default()
        };
        let notes = notes(&release);
        assert_eq!(notes[0].0, "DeletionCancelled");
        assert!(notes[0].1.contains("the eviction that jane asked for is not carried out"), "{}", notes[0].1);
        assert!(notes[1].1.contains("operation upgrade"), "{}", notes[1].1);
    }

    #[test]
    fn names_fit_and_differ() {
        let now = Timestamp::now();
        let long = "a".repeat(253);
        let names =
            ["DeletionCancelled", "OperationInterrupted"].map(|reason| unique_name(&long, reason, now));
        assert!(names.iter().all(|name| name.len() <= NAME_LIMIT));
        assert_ne!(names[0], names[1]);
    }
}
