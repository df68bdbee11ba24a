//! The trace span of a question and its answer: a child of the call's span, with a child for each call to the registry and
//! for the wait for clients.

use podward_core::UnixNanos;
use podward_proto::v1::{HandleRequest, HandleResponse};
use podward_runtime::telemetry::traces::{KeyValue, SpanKind, Spans};
use podward_traces::AnswerSpan;

use crate::model::{BindingKey, Desired};
use crate::sync::RegistryCall;

/// The service and the method by which questions arrive.
const RPC: (&str, &str) = ("podward.v1.HookRegistry", "Attach");
/// The greatest number of calls to the registry that are reported for one answer. The first ones are left out.
const MAX_CALLS: usize = 32;

/// The span of a question that is not answered yet.
#[derive(Debug)]
pub(crate) struct QuestionSpan {
    spans: Spans,
    answer: AnswerSpan,
}

impl QuestionSpan {
    /// Starts the span. Returns `None` if traces are not exported or the call is part of no trace.
    pub(crate) fn start(
        spans: &Spans,
        traceparent: &str,
        request: &HandleRequest,
        binding: &BindingKey,
        now: UnixNanos,
    ) -> Option<Self> {
        spans.are_wanted().then(|| Self::of(spans, traceparent, request, binding, now)).flatten()
    }

    fn of(
        spans: &Spans,
        traceparent: &str,
        request: &HandleRequest,
        binding: &BindingKey,
        now: UnixNanos,
    ) -> Option<Self> {
        let mut answer = AnswerSpan::start(traceparent, RPC, request, now)?;
        answer.describe([KeyValue::new("podward.binding", binding.to_string())]);
        Some(Self { spans: spans.clone(), answer })
    }

    /// Adds the instance that the question is about, and the calls to its registry.
    pub(crate) fn about(&mut self, kind: &str, desired: &Desired, calls: Vec<RegistryCall>) {
        let Desired { service, instance, .. } = desired;
        self.answer.describe([
            KeyValue::new("podward.registry.kind", kind.to_owned()),
            KeyValue::new("podward.registry.service", service.name.clone()),
            KeyValue::new("podward.registry.instance", format!("{}:{}", instance.host, instance.port)),
        ]);
        let left_out = calls.len().saturating_sub(MAX_CALLS);
        for call in calls.into_iter().skip(left_out) {
            let mut attributes = vec![KeyValue::new("podward.registry.instances", count(call.instances))];
            attributes.extend(call.address.clone().map(|address| KeyValue::new("server.address", address)));
            let error = call.error(instance).map(str::to_owned);
            self.answer.add_child(call.name, SpanKind::Client, (call.begin, call.end), attributes, error);
        }
    }

    /// Adds the wait for clients that may use an older state.
    pub(crate) fn waits_for_clients(&mut self, from: UnixNanos, to: UnixNanos) {
        self.answer.add_child("wait for clients", SpanKind::Internal, (from, to), Vec::new(), None);
    }

    /// Ends the span with the answer and exports it.
    pub(crate) fn end(self, response: &HandleResponse, now: UnixNanos) {
        self.answer.end(&self.spans, response, now);
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use podward_core::trace::{root_of, trace_of};
    use podward_proto::v1;
    use podward_registries::{Change, Instance, Registry, ServiceKey};

    use super::*;
    use crate::model::tests::{binding, pod};
    use crate::sync::tests::recorded;

    #[tokio::test]
    async fn an_answer_shows_its_calls_and_its_wait() {
        let key = BindingKey { namespace: "shop".to_owned(), name: "web".to_owned() };
        let desired = binding(serde_json::json!({})).desired(&pod("u"), "c").unwrap();
        let other = Instance { host: "10.0.0.8".to_owned(), ..desired.instance.clone() };
        let (registry, log) = recorded("10.0.0.7 is refused");
        let service = &desired.service;
        registry.instance(0, service, &other).await.unwrap();
        registry.instance(0, service, &desired.instance).await.unwrap();
        let change = |instance: &Instance| Change::Deregister(service.clone(), instance.clone());
        registry.write(&[change(&desired.instance), change(&other)]).await;
        registry.instances(0, service).await.unwrap();
        registry.instances(0, &ServiceKey { name: "api".to_owned(), ..service.clone() }).await.unwrap();

        let (trace, call) = (trace_of("u", "up"), root_of("u", "up", "1"));
        let request = v1::HandleRequest {
            phase: v1::Phase::Prepare.into(),
            pod: Some(v1::Pod { uid: "u".to_owned(), ..v1::Pod::default() }),
            ..v1::HandleRequest::default()
        };
        let at = |seconds: i64| UnixNanos(seconds * 1_000_000_000);
        assert!(QuestionSpan::of(&Spans::none(), "", &request, &key, at(1)).is_none());
        let context = trace.traceparent(call);
        let mut span = QuestionSpan::of(&Spans::none(), &context, &request, &key, at(1)).unwrap();
        span.about("Consul", &desired, log.about(0, service, &desired.instance));
        span.waits_for_clients(at(2), at(4));
        let response = v1::HandleResponse {
            outcome: v1::Outcome::Done.into(),
            evidence: Some(v1::Evidence { level: v1::EvidenceLevel::Proven.into(), detail: String::new() }),
            ..v1::HandleResponse::default()
        };
        let spans = span.answer.ended(&response, at(5));
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        let expected =
            ["registry read", "registry write", "registry list", "wait for clients", "answer PREPARE"];
        assert_eq!(names, expected);
        let [children @ .., answer] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(
            (answer.trace, answer.parent, answer.start, answer.end),
            (trace, Some(call), at(1), at(5))
        );
        assert!(children.iter().all(|child| child.trace == trace && child.parent == Some(answer.id)));
        assert_eq!((children[3].start, children[3].end), (at(2), at(4)));
        assert_eq!(children[1].error.as_deref(), Some("deregister at a: 10.0.0.7 is refused"));
        let attribute = |key: &str| {
            let found = answer.attributes.iter().find(|attribute| attribute.key.as_str() == key);
            found.map(|attribute| attribute.value.as_str().into_owned()).unwrap_or_default()
        };
        for (key, value) in [
            ("podward.binding", "shop/web"),
            ("podward.registry.kind", "Consul"),
            ("podward.registry.service", "web"),
            ("podward.registry.instance", "10.0.0.7:8080"),
            ("podward.hook.outcome", "DONE"),
            ("podward.evidence", "PROVEN"),
        ] {
            assert_eq!(attribute(key), value, "{key}");
        }
        assert!(log.about(4, service, &desired.instance).is_empty());
    }
}
