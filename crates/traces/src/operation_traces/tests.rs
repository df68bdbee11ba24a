use serde_json::json;

use super::*;

fn pod(labels: serde_json::Value, metadata: serde_json::Value) -> CachedPod {
    let mut value = json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "labels": labels}});
    value["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

fn label(stage: &str) -> String {
    format!("{stage}.podopslifecycle.kusionstack.io/a")
}

fn checking() -> CachedPod {
    let labels =
        json!({label("operating"): "1", label("operation-type"): "update", label("pre-check"): "10"});
    pod(labels, json!({}))
}

fn observe(traces: &OperationTraces, pod: &CachedPod, now: i64) {
    traces.observe(pod, &Operations::parse(pod.view().labels), true, UnixNanos(now));
}

fn request(operations: &[&str]) -> v1::HandleRequest {
    let operation = |id: &&str| v1::Operation { id: (*id).to_owned(), r#type: "update".to_owned() };
    v1::HandleRequest {
        pod: Some(v1::Pod { uid: "u".to_owned(), ..v1::Pod::default() }),
        operations: operations.iter().map(operation).collect(),
        ..v1::HandleRequest::default()
    }
}

#[test]
fn nothing_is_remembered_when_nobody_wants_spans() {
    let traces = OperationTraces::new(Spans::none());
    observe(&traces, &checking(), 11);
    assert!(traces.0.is_none() && traces.hook_call(&request(&["a"])).is_none());
}

#[test]
fn a_pod_is_remembered_while_it_has_operations() {
    let traces = OperationTraces(Some(Arc::new(Shared { spans: Spans::none(), pods: Mutex::default() })));
    let remembered = || traces.0.as_ref().unwrap().pods.lock().len();
    observe(&traces, &pod(json!({}), json!({})), 5);
    assert_eq!(remembered(), 0);
    observe(&traces, &checking(), 11);
    assert_eq!(remembered(), 1);
    observe(&traces, &pod(json!({}), json!({})), 12);
    assert_eq!(remembered(), 0);
    // It is over when nothing keeps the pod any more, and doesn't begin again with what is still heard of it.
    observe(&traces, &checking(), 11);
    let labels = serde_json::to_value(checking().view().labels).unwrap();
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    observe(
        &traces,
        &pod(labels.clone(), json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]})),
        12,
    );
    assert_eq!(remembered(), 1);
    observe(&traces, &pod(labels.clone(), going.clone()), 13);
    observe(&traces, &pod(labels, going), 14);
    assert_eq!(remembered(), 0);
    observe(&traces, &checking(), 11);
    traces.gone("u");
    assert_eq!(remembered(), 0);
}

#[test]
fn a_call_is_a_part_of_the_phase_that_waits_for_it() {
    let traces = OperationTraces(Some(Arc::new(Shared { spans: Spans::none(), pods: Mutex::default() })));
    observe(&traces, &checking(), 11);
    let call = traces.hook_call(&request(&["other", "a"])).unwrap();
    let (trace, phase) = (
        podward_core::trace::trace_of("u", "a"),
        podward_core::trace::span_of("u", "a", "1", podward_core::OperationPhase::PreChecking, UnixNanos(10)),
    );
    let (parsed, span) = podward_core::trace::parse_traceparent(&call.traceparent()).unwrap();
    assert_eq!(parsed, trace);
    assert_ne!(span, phase, "the hook's spans are parts of the call, which is a part of the phase");
    assert_eq!(call.parent(), Some(phase));
    assert!(traces.hook_call(&request(&["other"])).is_none());
    assert!(traces.hook_call(&request(&[])).is_none());
}

#[test]
fn a_call_to_a_webhook_is_a_part_of_the_phase_and_links_to_the_others() {
    let traces = OperationTraces(Some(Arc::new(Shared { spans: Spans::none(), pods: Mutex::default() })));
    observe(&traces, &checking(), 11);
    let call = |operations: &[(&str, &str)]| {
        let rule = "web/outside".to_owned();
        traces.webhook_call(&RuleWebhookCall { rule, host: "checks.shop", operations })
    };
    let phase =
        podward_core::trace::span_of("u", "a", "1", podward_core::OperationPhase::PreChecking, UnixNanos(10));
    let found = call(&[("v", "a"), ("u", "other"), ("u", "a"), ("u", "a")]).unwrap();
    assert_eq!((found.parent(), found.links()), (Some(phase), 1));
    assert!(call(&[("v", "a")]).is_none() && call(&[]).is_none());
}
