//! Deletes that wait for their pod (`--wait`).

use std::time::Duration;

use podward_core::keys::Stage;
use podward_runtime::admission::AdmissionLimits;
use serde_json::{Value, json};

use crate::fixture::{Fixture, POD, delete_review, pod, take_out, until};

const LONG: Duration = Duration::from_secs(600);
/// The number of watches without a waiting delete: nodes and namespaces.
const CACHE_WATCHES: usize = 2;

async fn waiting_fixture() -> Fixture {
    let limits = AdmissionLimits { decision_timeout: LONG, ..AdmissionLimits::default() };
    let fixture = Fixture::with(LONG, limits).await;
    fixture.cluster.put(POD, pod());
    until(|| fixture.cluster.watchers() == CACHE_WATCHES).await;
    fixture
}

/// Sends a delete, and calls `then` when it waits. Returns the response.
async fn waits_until(fixture: &Fixture, then: impl FnOnce()) -> Value {
    let meanwhile = async {
        until(|| fixture.cluster.watchers() > CACHE_WATCHES).await;
        then();
        std::future::pending::<()>().await;
    };
    let pod = pod();
    tokio::select! {
        response = fixture.delete(&pod) => response,
        () = meanwhile => unreachable!(),
    }
}

#[tokio::test]
async fn the_permission_ends_the_wait() {
    let fixture = waiting_fixture().await;
    let mut granted = pod();
    take_out(&mut granted);
    for stage in [Stage::Operating, Stage::Operate] {
        granted["metadata"]["labels"][stage.key("pod-delete")] = json!("1");
    }
    let mut touched = pod();
    touched["metadata"]["annotations"]["x"] = json!("y");
    let response = waits_until(&fixture, || {
        fixture.cluster.put(POD, touched);
        fixture.cluster.put(POD, granted);
    })
    .await;
    assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
    assert_eq!(fixture.controller.requests().len(), 1);
}

#[tokio::test]
async fn the_deletion_of_the_pod_ends_the_wait() {
    let fixture = waiting_fixture().await;
    let response = waits_until(&fixture, || fixture.cluster.delete(POD)).await;
    assert_eq!(response["allowed"], true);
    // The pod was deleted before the wait began.
    assert_eq!(fixture.delete(&pod()).await["allowed"], true);
}

#[tokio::test]
async fn the_wait_is_bounded() {
    let fixture = waiting_fixture().await;
    let response = fixture.ask("/delete?timeout=1s", &delete_review(&pod())).await;
    assert_eq!(response["status"]["code"], 429);
    assert!(response["status"]["message"].as_str().unwrap().contains("requested by jane"), "{response}");
    // The process stops.
    let response = waits_until(&fixture, || fixture.stop.cancel()).await;
    assert_eq!(response["status"]["code"], 429);
}

#[tokio::test]
async fn controllers_of_the_cluster_do_not_wait() {
    let fixture = waiting_fixture().await;
    let mut review = delete_review(&pod());
    review["request"]["userInfo"]["username"] =
        json!("system:serviceaccount:kube-system:replicaset-controller");
    assert_eq!(fixture.ask("/delete", &review).await["status"]["code"], 429);
    assert_eq!(fixture.evict().await["status"]["code"], 429);
    assert_eq!(fixture.cluster.watchers(), CACHE_WATCHES);
}
