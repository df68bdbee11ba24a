//! The trace span of an answer. It is a child of the caller's span.

use podward_core::UnixNanos;
use podward_core::trace::parse_traceparent;
use podward_proto::v1::{HandleRequest, HandleResponse};
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind, Spans, random_span_id};
use tonic::Request;

/// The span of an answer that is being computed.
#[derive(Debug)]
pub(super) struct AnswerSpan {
    spans: Spans,
    span: NewSpan,
}

impl AnswerSpan {
    /// Starts the span. Returns `None` if traces are not exported or the caller sends no trace context.
    pub(super) fn start(spans: &Spans, request: &Request<HandleRequest>, now: UnixNanos) -> Option<Self> {
        if !spans.are_wanted() {
            return None;
        }
        let (trace, parent) = parse_traceparent(request.metadata().get("traceparent")?.to_str().ok()?)?;
        let message = request.get_ref();
        let phase = message.phase().as_str_name().trim_start_matches("PHASE_");
        let pod = message.pod.clone().unwrap_or_default();
        let span = NewSpan {
            trace,
            id: random_span_id(),
            parent: Some(parent),
            kind: SpanKind::Server,
            name: format!("answer {phase}").into(),
            start: now,
            end: now,
            attributes: vec![
                KeyValue::new("rpc.system", "grpc"),
                KeyValue::new("rpc.service", "podward.v1.HookHandler"),
                KeyValue::new("rpc.method", "Handle"),
                KeyValue::new("k8s.namespace.name", pod.namespace),
                KeyValue::new("k8s.pod.name", pod.name),
                KeyValue::new("k8s.pod.uid", pod.uid),
                KeyValue::new("podward.hook.phase", phase),
                KeyValue::new("podward.hook.attempt", i64::from(message.attempt)),
            ],
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        };
        Some(Self { spans: spans.clone(), span })
    }

    /// Ends the span with the answer and exports it.
    pub(super) fn end(mut self, response: &HandleResponse, now: UnixNanos) {
        let outcome = response.outcome().as_str_name().trim_start_matches("OUTCOME_");
        self.span.attributes.push(KeyValue::new("podward.hook.outcome", outcome));
        if let Some(evidence) = &response.evidence {
            let level = evidence.level().as_str_name().trim_start_matches("EVIDENCE_LEVEL_");
            self.span.attributes.push(KeyValue::new("podward.evidence", level));
        }
        if !response.message.is_empty() {
            self.span.attributes.push(KeyValue::new("podward.hook.message", response.message.clone()));
        }
        self.span.end = now.max(self.span.start);
        self.spans.send(self.span);
    }
}
