//! The pods of a Job that ends. Its controller deletes all of them and creates no others.

use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{
    DELETE_OPERATION, DELETE_TYPE, DELETION_REQUEST, SERVICE_AVAILABLE, SERVICE_READY_GATE, Stage,
};
use podward_kube_util::now;
use serde_json::{Value, json};

use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};

/// Returns the request of the controller of the Job `import` to delete a pod because the Job ends.
fn by_job() -> DeletionRequest {
    let mut request =
        DeletionRequest::new(DeletionKind::Delete, "system:kube-controller-manager", UnixNanos(1));
    (request.by_workload, request.ends_workload) = (true, true);
    request
}

/// Returns the pod `name` of the Job `import`, which ends, with `request`.
fn of_ending_job(name: &str, request: &DeletionRequest) -> Value {
    let mut object = pod(name);
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "batch/v1", "kind": "Job", "name": "import", "uid": "import", "controller": true},
    ]);
    object["metadata"]["annotations"] = json!({DELETION_REQUEST: request.to_text()});
    object["metadata"]["finalizers"] = json!(["prot.podopslifecycle.kusionstack.io/queue"]);
    object
}

/// Creates the Job `import`, which still wants `wanted` pods, and a rule set with a budget of 1 for its pods.
fn ending_job(server: &ApiServer, wanted: usize) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "import", "uid": "import"},
        "spec": {"parallelism": 3, "completions": 3, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"succeeded": 3 - wanted, "active": wanted},
    });
    server.store(Kind::Sets, job, None).unwrap();
    server.rule("web", budget(json!(1)));
}

/// Begins the operation of the deletion, with the labels that the mutating webhook adds.
fn begin(server: &ApiServer, name: &str) {
    let mut object = server.get(Kind::Pods, name).unwrap();
    let labels = &mut object["metadata"]["labels"];
    labels[Stage::OperationType.key(DELETE_OPERATION)] = json!(DELETE_TYPE);
    for stage in [Stage::Operating, Stage::PreCheck] {
        labels[stage.key(DELETE_OPERATION)] = json!(now().0.to_string());
    }
    server.store(Kind::Pods, object, None).unwrap();
}

/// Ends the drain of the pod: its consumer has removed it from traffic.
fn drain(server: &ApiServer, name: &str) {
    let mut object = server.get(Kind::Pods, name).unwrap();
    object["metadata"]["finalizers"] = json!([]);
    server.store(Kind::Pods, object, None).unwrap();
}

/// The Job reports its end only after its pods are deleted. Somebody else has deleted one of them, too.
#[tokio::test]
async fn the_pods_of_a_job_that_ends_are_not_missing() {
    let server = ApiServer::new();
    ending_job(&server, 2);
    let by_jane = DeletionRequest::new(DeletionKind::Delete, "jane", UnixNanos(2));
    for (name, request) in [("web-1", by_job()), ("web-2", by_job().joined_by(&by_jane, false).unwrap())] {
        server.store(Kind::Pods, of_ending_job(name, &request), None).unwrap();
        begin(&server, name);
    }
    let mut leader = Leader::start(&server, "one");
    leader.until("the first pod goes", |leader| is_out(&leader.server, "web-1")).await;
    leader
        .until("the other pod waits for it", |leader| {
            assert!(!is_out(&leader.server, "web-2"));
            leader.reconcile("web-2").contains("[current unavailable]=1/2")
        })
        .await;
    drain(&server, "web-1");
    server.delete(Kind::Pods, "web-1");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-2")).await;
    leader.end().await;
}

/// A pod with the most restarts is drained, and waits until the others are gone.
#[tokio::test]
async fn a_pod_that_waits_for_the_others_of_its_job_takes_no_room() {
    let server = ApiServer::new();
    ending_job(&server, 3);
    let mut crashed = of_ending_job("web-0", &by_job());
    crashed["metadata"]["labels"].as_object_mut().unwrap().remove(SERVICE_AVAILABLE);
    crashed["status"]["conditions"] = json!([
        {"type": SERVICE_READY_GATE, "status": "True"}, {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "False"},
    ]);
    server.store(Kind::Pods, crashed, None).unwrap();
    for name in ["web-1", "web-2"] {
        server.store(Kind::Pods, of_ending_job(name, &by_job()), None).unwrap();
    }
    ["web-0", "web-1", "web-2"].iter().for_each(|name| begin(&server, name));
    let mut leader = Leader::start(&server, "one");
    let may_be_deleted = |leader: &Leader, name: &str| {
        leader.server.labels(name).contains_key(&Stage::Operate.key(DELETE_OPERATION))
    };
    leader
        .until("the others wait while it drains", |leader| {
            assert!(!is_out(&leader.server, "web-1") && !is_out(&leader.server, "web-2"));
            leader.reconcile("web-1").contains("[current unavailable]=1/3")
        })
        .await;
    drain(&server, "web-0");
    leader.until("another pod goes", |leader| is_out(&leader.server, "web-1")).await;
    assert!(may_be_deleted(&leader, "web-0"));
    leader
        .until("the last pod waits while that one drains", |leader| {
            assert!(!is_out(&leader.server, "web-2"));
            leader.reconcile("web-2").contains("[current unavailable]=1/2")
        })
        .await;
    drain(&server, "web-1");
    leader.until("the last pod goes", |leader| is_out(&leader.server, "web-2")).await;
    leader.end().await;
}
