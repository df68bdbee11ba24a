//! The span of a call to a hook or to the webhook of a rule.

use podward_core::trace::{SpanId, TraceId};
use podward_kube_util::now;
use podward_proto::v1;
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind, Spans, random_span_id};

use crate::spans::OperationRef;

/// A call to the webhook of a rule.
#[derive(Clone, Debug)]
pub struct RuleWebhookCall<'a> {
    /// The names of the PodTransitionRule and of the rule in it, as `object/rule`.
    pub rule: String,
    /// The host of the webhook.
    pub host: &'a str,
    /// The UID of each pod and the id of its operation.
    pub operations: &'a [(&'a str, &'a str)],
}

/// The span of a call in progress. Finish it with [`CallSpan::end`].
#[derive(Debug)]
pub struct CallSpan {
    spans: Spans,
    span: NewSpan,
    /// The attribute for the outcome of the call.
    outcome: &'static str,
}

impl CallSpan {
    /// Starts the span of a call to a hook, as a child of `place`. `others` are the current spans of the other
    /// operations of the request; the span links to them.
    pub(crate) fn begin(
        spans: Spans,
        request: &v1::HandleRequest,
        about: &OperationRef<'_>,
        place: (TraceId, SpanId),
        others: Vec<(TraceId, SpanId)>,
    ) -> Self {
        let phase = request.phase().as_str_name().trim_start_matches("PHASE_");
        let mut attributes = about.attributes();
        attributes.extend([
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", "podward.v1.HookHandler"),
            KeyValue::new("rpc.method", "Handle"),
            KeyValue::new("podward.hook", request.hook_name.clone()),
            KeyValue::new("podward.hook.phase", phase),
            KeyValue::new("podward.hook.attempt", i64::from(request.attempt)),
            KeyValue::new("podward.question.id", request.question_id.clone()),
        ]);
        Self::new(spans, format!("hook {phase}"), "podward.hook.outcome", attributes, place, others)
    }

    /// Starts the span of a call to the webhook of a rule. The other parameters are those of [`CallSpan::begin`].
    pub(crate) fn of_rule(
        spans: Spans,
        call: &RuleWebhookCall<'_>,
        about: &OperationRef<'_>,
        place: (TraceId, SpanId),
        others: Vec<(TraceId, SpanId)>,
    ) -> Self {
        let mut attributes = about.attributes();
        attributes.extend([
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("server.address", call.host.to_owned()),
            KeyValue::new("podward.rule", call.rule.clone()),
            KeyValue::new("podward.rule.pods", i64::try_from(call.operations.len()).unwrap_or(i64::MAX)),
        ]);
        Self::new(spans, "rule webhook".to_owned(), "podward.rule.outcome", attributes, place, others)
    }

    fn new(
        spans: Spans,
        name: String,
        outcome: &'static str,
        attributes: Vec<KeyValue>,
        place: (TraceId, SpanId),
        links: Vec<(TraceId, SpanId)>,
    ) -> Self {
        let start = now();
        let span = NewSpan {
            trace: place.0,
            id: random_span_id(),
            parent: Some(place.1),
            kind: SpanKind::Client,
            name: name.into(),
            start,
            end: start,
            attributes,
            events: Vec::new(),
            links,
            error: None,
        };
        CallSpan { spans, span, outcome }
    }

    /// Returns the value of the header `traceparent`, which makes the spans of the called system children of this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.span.trace.traceparent(self.span.id)
    }

    #[cfg(test)]
    pub(crate) fn parent(&self) -> Option<SpanId> {
        self.span.parent
    }

    #[cfg(test)]
    pub(crate) fn links(&self) -> usize {
        self.span.links.len()
    }

    /// Ends and emits the span.
    ///
    /// `evidence` is the evidence level of the answer, if there is one. `error` is the reason if there is no answer.
    pub fn end(mut self, outcome: &'static str, evidence: Option<&'static str>, error: Option<String>) {
        let attributes = &mut self.span.attributes;
        attributes.push(KeyValue::new(self.outcome, outcome));
        attributes.extend(evidence.map(|level| KeyValue::new("podward.evidence", level)));
        self.span.error = error;
        self.span.end = now().max(self.span.start);
        self.spans.send(self.span);
    }
}
