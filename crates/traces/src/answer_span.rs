//! The span of an answer to a call of a hook, in the process that answers.

use podward_core::UnixNanos;
use podward_core::trace::parse_traceparent;
use podward_proto::v1::{HandleRequest, HandleResponse};
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind, Spans, random_span_id};

/// The span of an answer that is being found: a child of the caller's span. Finish it with [`AnswerSpan::end`].
#[derive(Debug)]
pub struct AnswerSpan {
    span: NewSpan,
    children: Vec<NewSpan>,
}

impl AnswerSpan {
    /// Starts the span at `now`. `traceparent` is the trace context of the caller, and `rpc` the service and the method by
    /// which the question arrived. Returns `None` if the caller sends no valid trace context.
    pub fn start(
        traceparent: &str,
        rpc: (&'static str, &'static str),
        request: &HandleRequest,
        now: UnixNanos,
    ) -> Option<Self> {
        let (trace, parent) = parse_traceparent(traceparent)?;
        let phase = request.phase().as_str_name().trim_start_matches("PHASE_");
        let pod = request.pod.clone().unwrap_or_default();
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
                KeyValue::new("rpc.service", rpc.0),
                KeyValue::new("rpc.method", rpc.1),
                KeyValue::new("k8s.namespace.name", pod.namespace),
                KeyValue::new("k8s.pod.name", pod.name),
                KeyValue::new("k8s.pod.uid", pod.uid),
                KeyValue::new("podward.hook.phase", phase),
                KeyValue::new("podward.hook.attempt", i64::from(request.attempt)),
            ],
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        };
        Some(Self { span, children: Vec::new() })
    }

    /// Adds attributes.
    pub fn describe(&mut self, attributes: impl IntoIterator<Item = KeyValue>) {
        self.span.attributes.extend(attributes);
    }

    /// Adds a span of a part of the work, from `start` to `end`.
    pub fn add_child(
        &mut self,
        name: &'static str,
        kind: SpanKind,
        (start, end): (UnixNanos, UnixNanos),
        attributes: Vec<KeyValue>,
        error: Option<String>,
    ) {
        self.children.push(NewSpan {
            trace: self.span.trace,
            id: random_span_id(),
            parent: Some(self.span.id),
            kind,
            name: name.into(),
            start,
            end: end.max(start),
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            error,
        });
    }

    /// Ends the span at `now` with the answer and exports it by `spans`, after its children.
    pub fn end(self, spans: &Spans, response: &HandleResponse, now: UnixNanos) {
        self.ended(response, now).into_iter().for_each(|span| spans.send(span));
    }

    /// Ends the span at `now` with the answer. Returns its children and, as the last one, the span itself.
    pub fn ended(mut self, response: &HandleResponse, now: UnixNanos) -> Vec<NewSpan> {
        let outcome = response.outcome().as_str_name().trim_start_matches("OUTCOME_");
        self.describe([KeyValue::new("podward.hook.outcome", outcome)]);
        if let Some(evidence) = &response.evidence {
            let level = evidence.level().as_str_name().trim_start_matches("EVIDENCE_LEVEL_");
            self.describe([KeyValue::new("podward.evidence", level)]);
        }
        if !response.message.is_empty() {
            self.describe([KeyValue::new("podward.hook.message", response.message.clone())]);
        }
        self.span.end = now.max(self.span.start);
        self.children.push(self.span);
        self.children
    }
}
