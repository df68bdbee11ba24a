//! The text of the 429 answer for a delete or an eviction that is held.

use super::clone_set::waits_for_clone_set;
use crate::busy::BusyClaim;
use crate::cloneset::keys::SPECIFIED_DELETE;
use crate::model::deletion_request::{DeletionKind, DeletionRequest};
use crate::model::keys::{DELETE_OPERATION, SERVICE_READY_GATE, Stage, TO_DELETE};
use crate::model::operations::Operations;
use crate::model::pod::Pod;
use crate::model::time::UnixNanos;
use crate::protocol::gate::gate_is_off;

/// The text of the API server when a disruption budget has no room
/// (kubernetes/pkg/registry/core/pod/storage/eviction.go).
pub const BUDGET_REFUSAL: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// The beginning of the reference implementation's text. Clients search for it.
const UNDERWAY: &str = "pod deletion process is underway and being managed by PodOpsLifecycle";

/// The text by which the descheduler recognizes an eviction in the background (feature EvictionsInBackground).
const IN_BACKGROUND: &str = "Eviction triggered evacuation";

/// The text in a condition that reports a busy pod ([`crate::busy::BusyWork::words`]).
const WAITS_FOR_WORK: &str = "busy until";

/// The result of recording the deletion request.
#[derive(Clone, Copy, Debug)]
pub enum RecordOutcome<'a> {
    /// The request is on the pod.
    Recorded(&'a DeletionRequest),
    /// The request was refused for this reason (disruption budget, replica counts). The pod stays in service.
    Refused(&'a str),
    /// The request could not be recorded for this reason. The caller can try again.
    Failed(&'a str),
}

/// Returns the message for the caller: the pod is not deleted yet, what it waits for and since when, what comes next,
/// and how to cancel. `pod` is the pod that the webhook knows, possibly from before the request.
///
/// ```
/// use podward_core::Pod;
/// use podward_core::deletion::hold::{RecordOutcome, answer};
/// use podward_core::deletion::request::{DeletionKind, DeletionRequest};
/// use serde_json::json;
///
/// let pod: Pod = serde_json::from_value(json!({
///     "metadata": {"name": "web-0", "namespace": "shop", "labels": {"kusionstack.io/control": "true"},
///         "finalizers": ["prot.podopslifecycle.kusionstack.io/1"]},
/// })).unwrap();
/// let request = DeletionRequest::new(DeletionKind::Delete, "jane", podward_core::UnixNanos(1_700_000_000_000_000_000));
/// let text = answer(&pod, DeletionKind::Delete, RecordOutcome::Recorded(&request));
/// assert!(text.contains("prot.podopslifecycle.kusionstack.io/1") && text.contains("kubectl label pod web-0 -n shop"));
/// ```
#[must_use]
pub fn answer(pod: &Pod, kind: DeletionKind, outcome: RecordOutcome<'_>) -> String {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    match outcome {
        RecordOutcome::Refused(why) => why.to_owned(),
        RecordOutcome::Failed(why) => format!(
            "pod {namespace}/{name} is held by PodOpsLifecycle, and the deletion request could not be recorded: {why}; \
             try again"
        ),
        RecordOutcome::Recorded(request) if !pod.view().is_controlled() => {
            let begin = match kind {
                DeletionKind::Delete => String::new(),
                DeletionKind::Evict => format!("{IN_BACKGROUND}; "),
            };
            let set = pod.controller().map(|owner| owner.name.as_str()).unwrap_or_default();
            let waits = waits_for_clone_set(pod, &request.requested_by);
            let waits = waits.map(|why| format!(", and not before this: {why}")).unwrap_or_default();
            format!(
                "{begin}pod {namespace}/{name} is deleted by CloneSet {set}{waits}; to cancel: kubectl label pod {name} \
                 -n {namespace} {SPECIFIED_DELETE}-"
            )
        }
        RecordOutcome::Recorded(request) => {
            let begin = match kind {
                DeletionKind::Delete => UNDERWAY.to_owned(),
                DeletionKind::Evict => format!("{UNDERWAY}; {IN_BACKGROUND}"),
            };
            let finalizers: Vec<&str> = pod.view().protection_finalizers().collect();
            let with = if finalizers.is_empty() {
                String::new()
            } else {
                format!(" with finalizers: [{}]", finalizers.join(" "))
            };
            format!(
                "{begin}{with}; pod {namespace}/{name} is {} automatically when all consumers have released it: {}; requested by {} at {}; \
                 to cancel: kubectl label pod {name} -n {namespace} {TO_DELETE}-",
                match request.kind {
                    DeletionKind::Delete => "deleted",
                    DeletionKind::Evict => "evicted",
                },
                waits_for(pod, request),
                request.requested_by,
                UnixNanos(request.requested_at).to_rfc3339(),
            )
        }
    }
}

fn waits_for(pod: &Pod, request: &DeletionRequest) -> String {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let begun = operations.get(DELETE_OPERATION).filter(|operation| operation.has(Stage::Operating));
    let checking = begun.is_some_and(|operation| !operation.has(Stage::PreChecked));
    if let Some(text) = busy(pod, request).filter(|_| checking || begun.is_none()) {
        return text;
    }
    if let (true, Some(message)) = (checking, pod.lifecycle_message()) {
        return message.to_owned();
    }
    let since = label_time(pod, Stage::Preparing).or_else(|| pod.gate_since().filter(|_| gate_is_off(&view)));
    let since = since.unwrap_or(UnixNanos(request.requested_at)).to_rfc3339();
    let holders = holders(pod);
    match (gate_is_off(&view), holders.is_empty()) {
        (true, true) => "no consumer holds it".to_owned(),
        (true, false) => format!("waits since {since} for {}", holders.join(", ")),
        (false, true) => format!("waits since {since} for {SERVICE_READY_GATE} to turn False"),
        (false, false) => {
            format!(
                "waits since {since} for {SERVICE_READY_GATE} to turn False and for {}",
                holders.join(", ")
            )
        }
    }
}

/// Returns the text about a busy pod from the pod's own annotations, which are newer than the condition. When the
/// condition names another check of the deletion, the maximum has passed, and the pod waits for that check.
fn busy(pod: &Pod, request: &DeletionRequest) -> Option<String> {
    let work = BusyClaim::of(&pod.view()).at(UnixNanos(request.requested_at))?;
    let is_about_another =
        |message: &str| message.contains(DELETE_OPERATION) && !message.contains(WAITS_FOR_WORK);
    if pod.lifecycle_message().is_some_and(is_about_another) {
        return None;
    }
    Some(format!(
        "the pod is {}, and is not interrupted before that, unless the maximum wait passes",
        work.words()
    ))
}

fn label_time(pod: &Pod, stage: Stage) -> Option<UnixNanos> {
    pod.view().labels.get(&stage.key(DELETE_OPERATION))?.parse().ok().map(UnixNanos)
}

/// Returns the consumers that use the pod: by their keys among the expected finalizers, or else by finalizer.
fn holders(pod: &Pod) -> Vec<String> {
    let view = pod.view();
    let expected = view.expected_finalizers().unwrap_or_default();
    view.protection_finalizers()
        .map(|finalizer| {
            let consumer = expected.missing(&[]).find(|(_, of)| *of == finalizer);
            match consumer {
                Some((consumer, _)) => match crate::hooks::hook_of_consumer_key(consumer) {
                    Some(hook) => format!("hook {hook}"),
                    None => consumer.to_owned(),
                },
                None => format!("the owner of {finalizer}"),
            }
        })
        .collect()
}
