//! A leader against a stand-in for the API server: the requests of reconciliations, and their failures.

mod api_server;
mod fixture;
mod forgetting;
mod refusals;
mod rollouts;
mod turns;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use podward_core::hooks::hook_finalizer;
use podward_core::keys::{
    BUSY_LIMITS, BUSY_UNTIL, CONTROL_LABEL, LIFECYCLE_CONDITION, SERVICE_AVAILABLE, SERVICE_READY_GATE, Stage,
};
use podward_hooks::HookArgs;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Spans;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Leader;
use crate::report::Metrics;
use api_server::ApiServer;

/// The limit of each wait. A test that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Running {
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    work: JoinHandle<()>,
}

impl Running {
    fn start(server: &ApiServer) -> Self {
        let metrics = Arc::new(Metrics::new());
        let leader = Leader {
            client: server.client(),
            identity: "test".to_owned(),
            hooks: HookArgs::default(),
            dialer: dialer(),
            node_unreachable_limit: Duration::from_secs(60),
            max_busy: Duration::from_secs(60),
            check_deletes_as_requester: false,
            metrics: metrics.clone(),
            progress: Progress::default(),
            spans: Spans::none(),
            hub: watch::channel(None).0,
            pods: watch::channel(None).0,
        };
        let stop = CancellationToken::new();
        let until = stop.clone();
        Running { metrics, stop, work: tokio::spawn(async move { leader.lead(until).await }) }
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.work).await.expect("the leader did not stop").unwrap();
    }
}

fn dialer() -> GuardedDialer {
    GuardedDialer::new(AddressPolicy::new(&[], ApiServerAddresses::fixed([])))
}

/// A pod in service.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "annotations": {},
            "labels": {CONTROL_LABEL: "true", SERVICE_AVAILABLE: "1"},
        },
        "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"phase": "Running", "conditions": [
            {"type": SERVICE_READY_GATE, "status": "True"}, {"type": "Ready", "status": "True"},
            {"type": "ContainersReady", "status": "True"},
        ]},
    })
}

/// A pod in service on which the operation `a` begins.
fn operated(name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"][Stage::Operating.key("a")] = json!("1");
    pod["metadata"]["labels"][Stage::OperationType.key("a")] = json!("update");
    pod
}

fn label(pod: &Value, key: &str) -> bool {
    pod["metadata"]["labels"].get(key).is_some()
}

fn condition(pod: &Value, kind: &str) -> String {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map(|condition| condition["status"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn is_granted(pod: &Value) -> bool {
    label(pod, &Stage::Operate.key("a"))
}

#[tokio::test]
async fn without_webhooks_an_operation_takes_five_writes_and_one_event() {
    let server = ApiServer::new();
    server.put(pod("idle"));
    server.put(operated("web-0"));
    let leader = Running::start(&server);
    let granted = server.until("web-0", is_granted).await;
    assert_eq!(condition(&granted, SERVICE_READY_GATE), "False");
    assert!(!label(&granted, SERVICE_AVAILABLE));
    assert_eq!(condition(&granted, LIFECYCLE_CONDITION), "False");

    let mut finished = server.get("web-0").unwrap();
    let labels = finished["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove(&Stage::Operating.key("a"));
    labels.remove(&Stage::OperationType.key("a"));
    server.put(finished);
    let available = |pod: &Value| label(pod, SERVICE_AVAILABLE) && condition(pod, "Ready") == "True";
    let back = server.until("web-0", available).await;
    let left =
        back["metadata"]["labels"].as_object().unwrap().keys().filter(|key| key.ends_with("/a")).count();
    assert_eq!(left, 0, "{back:#}");
    assert_eq!(condition(&back, LIFECYCLE_CONDITION), "", "removed when the gate turned True");
    let note = server.event("ServiceAvailable").await;
    assert!(note.starts_with("operation a (update): ") && note.ends_with("the pod is in service"), "{note}");
    assert_eq!((server.writes("web-0"), server.writes("idle")), (5, 0));
    leader.stop().await;
}

#[tokio::test]
async fn the_end_of_a_wait_for_a_busy_pod_is_written_with_the_condition() {
    let server = ApiServer::new();
    let mut busy = operated("web-0");
    let until = jiff::Timestamp::now() + Duration::from_secs(3600);
    busy["metadata"]["annotations"][BUSY_UNTIL] = json!(until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    server.put(busy);
    let leader = Running::start(&server);
    let message = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == LIFECYCLE_CONDITION);
        found.map(|condition| condition["message"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    let waiting = server.until("web-0", |pod| message(pod).contains("busy until")).await;
    let limits: Value =
        serde_json::from_str(waiting["metadata"]["annotations"][BUSY_LIMITS].as_str().unwrap()).unwrap();
    let limit = limits["a"].as_str().unwrap();
    assert!(message(&waiting).contains(&format!("waits until {limit} at the latest")), "{waiting:#}");
    assert_eq!(server.writes("web-0"), 1);

    let mut idle = server.get("web-0").unwrap();
    idle["metadata"]["annotations"].as_object_mut().unwrap().remove(BUSY_UNTIL);
    server.put(idle);
    let granted = server.until("web-0", is_granted).await;
    assert_eq!(granted["metadata"]["annotations"].get(BUSY_LIMITS), None);
    leader.stop().await;
}

#[tokio::test]
async fn after_a_conflict_the_pod_is_read_and_decided_again() {
    let server = ApiServer::new();
    server.disturb();
    server.put(operated("web-0"));
    let leader = Running::start(&server);
    let granted = server.until("web-0", is_granted).await;
    assert_eq!(granted["metadata"]["annotations"]["other"], "kept");
    assert_eq!(server.reads(), 1);
    leader.stop().await;
}

#[tokio::test]
async fn a_rejected_write_is_reported_and_does_not_delay_other_pods() {
    let server = ApiServer::new();
    server.reject("rejected", StatusCode::FORBIDDEN);
    server.put(operated("rejected"));
    server.put(operated("web-0"));
    let leader = Running::start(&server);
    server.until("web-0", is_granted).await;
    let note = server.event("WriteRefused").await;
    assert!(note.contains("shop/rejected") && note.contains("RBAC"), "{note}");
    assert_eq!(server.writes("rejected"), 0);
    leader.stop().await;
}

#[tokio::test]
async fn a_failed_write_is_retried() {
    let server = ApiServer::new();
    server.reject("web-0", StatusCode::INTERNAL_SERVER_ERROR);
    server.put(operated("web-0"));
    server.put(operated("web-1"));
    let leader = Running::start(&server);
    server.until("web-1", is_granted).await;
    assert_eq!(server.writes("web-0"), 0);
    server.reject("none", StatusCode::OK);
    server.until("web-0", is_granted).await;
    leader.stop().await;
}

#[tokio::test]
async fn many_pods_leave_service_in_turn() {
    let server = ApiServer::new();
    let names: Vec<String> = (0..50).map(|number| format!("web-{number}")).collect();
    names.iter().for_each(|name| drop(server.put(operated(name))));
    let leader = Running::start(&server);
    for name in &names {
        server.until(name, is_granted).await;
    }
    leader.stop().await;
}

#[tokio::test]
async fn pods_whose_writes_are_not_answered_do_not_keep_others_in_service() {
    let server = ApiServer::new();
    server.hold_writes("slow");
    (0..10).for_each(|number| drop(server.put(operated(&format!("slow-{number}")))));
    server.put(operated("web-0"));
    let leader = Running::start(&server);
    server.until("web-0", is_granted).await;
    assert_eq!(server.writes("slow-0"), 0);
    drop(leader);
}

#[tokio::test]
async fn a_leader_stops_before_it_has_the_first_list() {
    let server = ApiServer::new();
    server.hold_lists();
    server.put(operated("web-0"));
    Running::start(&server).stop().await;
    assert_eq!(server.writes("web-0"), 0);
}

/// In an outage, somebody removes the opt-in label and deletes the pod. Nothing of Podward observes it.
#[tokio::test]
async fn a_new_leader_releases_a_pod_that_left_in_an_outage() {
    let server = ApiServer::new();
    let other = "prot.podopslifecycle.kusionstack.io/other";
    let mut left = pod("web-0");
    left["metadata"]["labels"].as_object_mut().unwrap().remove(CONTROL_LABEL);
    left["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
    left["metadata"]["finalizers"] = json!([hook_finalizer("balancer"), other]);
    server.put(left);
    server.put(operated("web-1"));
    let leader = Running::start(&server);
    let released = server.until("web-0", |pod| pod["metadata"]["finalizers"] == json!([other])).await;
    assert!(!label(&released, CONTROL_LABEL));
    server.until("web-1", is_granted).await;
    leader.stop().await;
}
