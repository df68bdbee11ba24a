use std::collections::BTreeMap;

use podward_core::trace::{SpanId, TraceId, run_label};
use serde::Deserialize;
use serde_json::json;

use super::super::decode::decode;
use super::*;

static ROUTE: WebhookRoute =
    WebhookRoute { path: "/delete", api: ("", "v1"), resources: &[("pods", "")], operations: &[] };

#[derive(Deserialize)]
struct Object {}

/// Returns where the spans of a decision about a delete are, and whether they are errors. The reviewed pod has the runs
/// `runs`, by ID; it is not known if there are none.
fn spans(
    runs: &[(&str, &str)],
    dry_run: bool,
    response: &AdmissionResponse,
) -> Vec<(TraceId, Option<SpanId>, bool)> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "operation": "DELETE", "name": "web", "namespace": "shop", "dryRun": dry_run,
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {"username": "jane"},
        },
    });
    let body = review.to_string();
    let request = decode::<Object>(body.as_bytes()).unwrap();
    let labels: BTreeMap<String, String> =
        runs.iter().map(|(id, run)| (run_label(id), (*run).to_owned())).collect();
    let pod = TracedPod { uid: "u", labels: None, old_labels: Some(&labels) };
    let pod = (!runs.is_empty()).then_some(&pod);
    let found = of(&ROUTE, &request, pod, response, Duration::from_millis(5));
    for span in &found {
        assert_eq!((span.name.as_ref(), span.end.0 - span.start.0), ("admission /delete", 5_000_000));
        let has = |key: &str, value: &str| {
            span.attributes
                .iter()
                .any(|attribute| attribute.key.as_str() == key && attribute.value.as_str() == value)
        };
        assert!(has("k8s.pod.uid", "u") && has("user.name", "jane"), "{span:?}");
        let is_denied_without_error = !response.allowed && span.error.is_none();
        assert_eq!(has("podward.admission.message", "later"), is_denied_without_error, "{span:?}");
    }
    found.into_iter().map(|span| (span.trace, span.parent, span.error.is_some())).collect()
}

fn place(id: &str, run: &str, is_error: bool) -> (TraceId, Option<SpanId>, bool) {
    (trace_of("u", id), Some(root_of("u", id, run)), is_error)
}

fn denied() -> AdmissionResponse {
    AdmissionResponse::try_again("later".to_owned())
}

fn began(run: &str, response: AdmissionResponse) -> AdmissionResponse {
    let operation =
        ChangedOperation { pod_uid: "u".to_owned(), id: "pod-delete".to_owned(), run: run.to_owned() };
    AdmissionResponse { changed_operation: Some(operation), ..response }
}

#[test]
fn a_denial_that_begins_an_operation_is_a_part_of_it_without_error() {
    assert_eq!(spans(&[], false, &began("7", denied())), [place("pod-delete", "7", false)]);
    let other = spans(&[("a", "1")], false, &began("7", denied()));
    assert_eq!(other, [place("a", "1", true), place("pod-delete", "7", false)]);
}

#[test]
fn the_run_is_the_one_after_the_decision() {
    let spans = spans(&[("pod-delete", "1")], false, &began("7", denied()));
    assert_eq!(spans, [place("pod-delete", "7", false)]);
}

#[test]
fn an_allowed_delete_that_has_begun_its_operation_is_a_part_of_that_alone() {
    let response = began("7", AdmissionResponse::allow());
    assert_eq!(spans(&[("a", "1")], false, &response), [place("pod-delete", "7", false)]);
}

#[test]
fn decisions_that_change_nothing_have_no_spans() {
    let repeated = AdmissionResponse { is_repeated: true, ..denied() };
    for response in [AdmissionResponse::allow(), repeated] {
        assert_eq!(spans(&[("a", "1")], false, &response), []);
    }
    assert_eq!(spans(&[("a", "1")], true, &began("7", denied())), [], "a dry run");
    assert_eq!(spans(&[], false, &denied()), [], "the pod is not known");
}
