//! The spans of reviews that begin an operation.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use podward_core::keys::{DELETION_REQUEST, Stage};
use podward_core::trace::{root_of, trace_of};
use podward_runtime::admission::AdmissionLimits;
use serde_json::json;
use tonic::Status;

use crate::fake_collector::FakeCollector;
use crate::fake_controller::{Behavior, RUN};
use crate::fixture::{Fixture, POD, delete_review, pod, take_out, until};

async fn traced() -> (Fixture, FakeCollector) {
    let collector = FakeCollector::start().await;
    let fixture = Fixture::traced(collector.spans(), Duration::ZERO, AdmissionLimits::default()).await;
    (fixture, collector)
}

/// Checks that the spans with `names` are children of the root of the operation that the fake controller begins, and that
/// no other spans were sent. None of them is an error.
fn check(spans: &[Span], names: &[&str]) {
    let found: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(found, names, "{spans:#?}");
    for span in spans {
        assert_eq!(span.trace_id, trace_of("7", "pod-delete").0, "{span:#?}");
        assert_eq!(span.parent_span_id, root_of("7", "pod-delete", RUN).0, "{span:#?}");
        assert!(span.status.as_ref().is_none_or(|status| status.code == 0), "{span:#?}");
    }
}

#[tokio::test]
async fn reviews_that_begin_an_operation_are_in_its_trace() {
    let (fixture, collector) = traced().await;
    fixture.cluster.put(POD, pod());
    assert_eq!(fixture.delete(&pod()).await["allowed"], false);
    assert_eq!(fixture.evict().await["allowed"], false);
    // The request of another user replaces that of the workload. Its operation goes on.
    let mut held = pod();
    let request = json!({"kind": "Delete", "requestedBy": "rs", "requestedAt": 1, "byWorkload": true});
    held["metadata"]["annotations"][DELETION_REQUEST] = json!(request.to_string());
    held["metadata"]["labels"][Stage::Operating.key("pod-delete")] = json!(RUN);
    assert_eq!(fixture.delete(&held).await["allowed"], false);
    check(&collector.finish().await, &["admission /delete", "admission /evict", "admission /delete"]);
}

#[tokio::test]
async fn reviews_that_begin_nothing_have_no_spans() {
    let (fixture, collector) = traced().await;
    let mut repeated = pod();
    let request = json!({"kind": "Delete", "requestedBy": "jane", "requestedAt": 1});
    repeated["metadata"]["annotations"][DELETION_REQUEST] = json!(request.to_string());
    repeated["metadata"]["labels"][Stage::Operating.key("pod-delete")] = json!(RUN);
    assert_eq!(fixture.delete(&repeated).await["allowed"], false);
    let mut granted = repeated.clone();
    take_out(&mut granted);
    granted["metadata"]["labels"][Stage::Operate.key("pod-delete")] = json!("12");
    assert_eq!(fixture.delete(&granted).await["allowed"], true);
    let mut dry_run = delete_review(&pod());
    dry_run["request"]["dryRun"] = json!(true);
    assert_eq!(fixture.ask("/delete", &dry_run).await["allowed"], true);
    assert_eq!(fixture.evict().await["allowed"], true, "there is no such pod");
    fixture.cluster.put(POD, pod());
    for behavior in [
        Behavior::LeavesToCloneSet,
        Behavior::Fails(Status::resource_exhausted("the budget is full")),
        Behavior::Fails(Status::permission_denied("no")),
        Behavior::Fails(Status::unavailable("going away")),
    ] {
        fixture.controller.set_behavior(behavior);
        assert_eq!(fixture.delete(&pod()).await["allowed"], false);
        assert_eq!(fixture.evict().await["allowed"], false);
    }
    check(&collector.finish().await, &[]);
}

#[tokio::test]
async fn a_delete_that_waits_is_in_the_trace_of_the_operation_that_it_began() {
    let collector = FakeCollector::start().await;
    let long = Duration::from_secs(600);
    let limits = AdmissionLimits { decision_timeout: long, ..AdmissionLimits::default() };
    let fixture = Fixture::traced(collector.spans(), long, limits).await;
    fixture.cluster.put(POD, pod());
    let gone = async {
        until(|| !fixture.controller.requests().is_empty()).await;
        fixture.cluster.delete(POD);
    };
    let review = pod();
    let (response, ()) = tokio::join!(fixture.delete(&review), gone);
    assert_eq!(response["allowed"], true);
    check(&collector.finish().await, &["admission /delete"]);
}
