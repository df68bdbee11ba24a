//! The span of a call to a hook, or to the webhook of a rule.

use podward_core::trace::{SpanId, TraceId};
use podward_proto::v1;
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind, Spans, random_span_id};

use super::spans::About;
use crate::reconcile::now;
use crate::rules::RuleId;

/// A call that goes on.
#[derive(Debug)]
pub(crate) struct CallSpan {
    spans: Spans,
    span: NewSpan,
    /// The attribute that says what became of it.
    outcome: &'static str,
}

impl CallSpan {
    /// A call to a hook, within `place`, which is about an operation; `others` are the places of the other operations that the call is
    /// about.
    pub(super) fn begin(
        spans: Spans,
        request: &v1::HandleRequest,
        about: &About<'_>,
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

    /// A call to the webhook of a rule, which is on `host`, about so many `pods`; `about`, `place` and `others` are as of a hook.
    pub(super) fn of_rule(
        spans: Spans,
        (rule, host): (&RuleId, &str),
        pods: usize,
        about: &About<'_>,
        place: (TraceId, SpanId),
        others: Vec<(TraceId, SpanId)>,
    ) -> Self {
        let mut attributes = about.attributes();
        attributes.extend([
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("server.address", host.to_owned()),
            KeyValue::new("podward.rule", format!("{}/{}", rule.object, rule.rule)),
            KeyValue::new("podward.rule.pods", i64::try_from(pods).unwrap_or(i64::MAX)),
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

    /// The header that makes the hook's own spans parts of this one.
    pub(crate) fn traceparent(&self) -> String {
        self.span.trace.traceparent(self.span.id)
    }

    #[cfg(test)]
    pub(super) fn parent(&self) -> Option<SpanId> {
        self.span.parent
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> usize {
        self.span.links.len()
    }

    /// The call is over. `evidence` stands behind its answer; `error` is why there was none.
    pub(crate) fn end(
        mut self,
        outcome: &'static str,
        evidence: Option<&'static str>,
        error: Option<String>,
    ) {
        let attributes = &mut self.span.attributes;
        attributes.push(KeyValue::new(self.outcome, outcome));
        attributes.extend(evidence.map(|level| KeyValue::new("podward.evidence", level)));
        self.span.error = error;
        self.span.end = now().max(self.span.start);
        self.spans.send(self.span);
    }
}
