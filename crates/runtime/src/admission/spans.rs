//! Spans of decisions that change an operation or deny a change of it. They are children of the operation's root span.

use std::time::Duration;

use jiff::Timestamp;
use podward_core::UnixNanos;
use podward_core::trace::{root_of, trace_of};

use super::decode::AdmissionRequest;
use super::response::AdmissionResponse;
use super::traced_pod::TracedPod;
use super::webhook::WebhookRoute;
use crate::telemetry::traces::{KeyValue, NewSpan, SpanKind, Spans, random_span_id};

/// Sends a span for each operation that a decision concerns. The decision ends now and `took` this long. A decision
/// that changes nothing, or repeats an earlier one, has no span.
pub(super) fn send<T>(
    spans: &Spans,
    route: &WebhookRoute,
    request: &AdmissionRequest<'_, T>,
    pod: &TracedPod<'_>,
    response: &AdmissionResponse,
    took: Duration,
) {
    let is_new = if response.allowed { response.patch.is_some() } else { !response.is_repeated };
    if request.dry_run || pod.uid.is_empty() || !is_new {
        return;
    }
    let end = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let start = end.saturating_sub(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX));
    for id in pod.operations(response) {
        let Some(run) = pod.run(&id) else { continue };
        spans.send(NewSpan {
            trace: trace_of(pod.uid, &id),
            id: random_span_id(),
            parent: Some(root_of(pod.uid, &id, run)),
            kind: SpanKind::Server,
            name: format!("admission {}", route.path).into(),
            start: UnixNanos(start),
            end: UnixNanos(end),
            attributes: vec![
                KeyValue::new("k8s.namespace.name", request.namespace.to_string()),
                KeyValue::new("k8s.pod.name", request.name.to_string()),
                KeyValue::new("k8s.pod.uid", pod.uid.to_owned()),
                KeyValue::new("podward.operation.id", id),
                KeyValue::new("podward.admission.uid", request.uid.to_string()),
                KeyValue::new("podward.admission.operation", request.operation.as_str()),
                KeyValue::new("podward.admission.allowed", response.allowed),
                KeyValue::new("user.name", request.user_info.username.to_string()),
            ],
            events: Vec::new(),
            links: Vec::new(),
            error: (!response.allowed).then(|| response.message.clone()),
        });
    }
}
