//! Spans of decisions that change an operation or deny a change of it. They are children of the operation's root span.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use podward_core::UnixNanos;
use podward_core::trace::{root_of, trace_of};

use super::changed_operation::ChangedOperation;
use super::decode::AdmissionRequest;
use super::response::AdmissionResponse;
use super::traced_pod::TracedPod;
use super::webhook::WebhookRoute;
use crate::telemetry::traces::{KeyValue, NewSpan, SpanKind, random_span_id};

/// Returns a span for each operation that a decision concerns. The decision ends now and `took` this long. `pod` is the
/// pod in the request, if there is one. A decision that changes nothing, or repeats an earlier one, has no span.
pub(super) fn of<T>(
    route: &WebhookRoute,
    request: &AdmissionRequest<'_, T>,
    pod: Option<&TracedPod<'_>>,
    response: &AdmissionResponse,
    took: Duration,
) -> Vec<NewSpan> {
    if request.dry_run {
        return Vec::new();
    }
    let end = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let start = end.saturating_sub(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX));
    let span = |operation: ChangedOperation| {
        let ChangedOperation { pod_uid, id, run } = operation;
        let mut attributes = vec![
            KeyValue::new("k8s.namespace.name", request.namespace.to_string()),
            KeyValue::new("k8s.pod.name", request.name.to_string()),
            KeyValue::new("k8s.pod.uid", pod_uid.clone()),
            KeyValue::new("podward.operation.id", id.clone()),
            KeyValue::new("podward.admission.uid", request.uid.to_string()),
            KeyValue::new("podward.admission.operation", request.operation.as_str()),
            KeyValue::new("podward.admission.allowed", response.allowed),
            KeyValue::new("user.name", request.user_info.username.to_string()),
        ];
        // The denial of a delete that has begun the operation is not an error of the operation.
        let is_begun = response.changed_operation.as_ref().is_some_and(|changed| changed.id == id);
        let denial = (!response.allowed).then(|| response.message.clone());
        let (message, error) = if is_begun { (denial, None) } else { (None, denial) };
        attributes.extend(message.map(|message| KeyValue::new("podward.admission.message", message)));
        NewSpan {
            trace: trace_of(&pod_uid, &id),
            id: random_span_id(),
            parent: Some(root_of(&pod_uid, &id, &run)),
            kind: SpanKind::Server,
            name: format!("admission {}", route.path).into(),
            start: UnixNanos(start),
            end: UnixNanos(end),
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            error,
        }
    };
    operations(pod, response).into_values().map(span).collect()
}

/// Returns the operations that a decision concerns, by ID. The run of an operation that was begun while the decision was
/// made is that of the response: the pod in the request is older.
fn operations(
    pod: Option<&TracedPod<'_>>,
    response: &AdmissionResponse,
) -> BTreeMap<String, ChangedOperation> {
    let is_new = if response.allowed { response.patch.is_some() } else { !response.is_repeated };
    let reviewed = pod.filter(|pod| is_new && !pod.uid.is_empty()).into_iter().flat_map(|pod| {
        pod.operations(response).into_iter().filter_map(|id| {
            let run = pod.run(&id)?.to_owned();
            Some(ChangedOperation { pod_uid: pod.uid.to_owned(), id, run })
        })
    });
    let changed = response.changed_operation.iter().cloned();
    reviewed.chain(changed).map(|operation| (operation.id.clone(), operation)).collect()
}

#[cfg(test)]
mod tests;
