//! How often owners are read. A stand-in for the API server counts the reads, most of which take over a second.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::client::Body;
use podward_core::deletion::Ruling;
use podward_core::deletion::request::JointState;
use podward_core::keys::CONTROL_LABEL;
use podward_kube_util::PodKey;
use podward_runtime::retry::API_TIMEOUT;
use serde_json::Value;

use super::*;
use crate::Deletions;
use crate::owners::ReplicaCounts;
use crate::watches::WaitingPods;

const PODS: usize = 8;
const SLOW: Duration = Duration::from_millis(1100);

/// An API server with a ReplicaSet that wants `wanted` of its pods.
#[derive(Clone)]
struct SlowApiServer {
    wanted: usize,
    delay: Duration,
    /// The controller of the workload has deleted the listed pods.
    is_deleting: bool,
    pods: Arc<Vec<Value>>,
    lists: Arc<AtomicUsize>,
    /// The pods from this number on have no request yet when they are listed, or no permission if they belong to a Job.
    requested: Arc<AtomicUsize>,
    /// The number of pods that were written. Writes of `web-1` fail at once, and the others take a moment.
    written: Arc<AtomicUsize>,
}

impl SlowApiServer {
    fn new(wanted: usize, requested: bool) -> Self {
        let pod = |number: usize| {
            let request = DeletionRequest {
                by_workload: true,
                ..DeletionRequest::new(DeletionKind::Delete, REPLICA_SET_CONTROLLER, UnixNanos(1))
            };
            let mut pod = json!({
                "metadata": {
                    "name": format!("web-{number}"), "namespace": "shop", "uid": format!("u{number}"),
                    "resourceVersion": "1", "labels": {CONTROL_LABEL: "true"}, "annotations": {},
                    "managedFields": [{"manager": "x", "operation": "Update", "fieldsV1": {"f:metadata": {}}}],
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true},
                    ],
                },
                "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"},
            });
            if requested {
                for stage in [Stage::Operating, Stage::Operate] {
                    pod["metadata"]["labels"][stage.key("pod-delete")] = json!("1");
                }
                pod["metadata"]["labels"][TO_DELETE] = json!("1");
                pod["status"]["conditions"] = json!([{"type": SERVICE_READY_GATE, "status": "False"}]);
                pod["metadata"]["annotations"][DELETION_REQUEST] = json!(request.to_text());
            }
            pod
        };
        let pods = Arc::new((0..PODS).map(pod).collect());
        let requested = Arc::new(AtomicUsize::new(PODS));
        let (lists, written) = (Arc::default(), Arc::default());
        SlowApiServer { wanted, delay: SLOW, is_deleting: false, pods, lists, requested, written }
    }

    /// Returns the server with a Job as the owner. It ends, and its pods are deleted together.
    fn of_job(self) -> Self {
        let mut pods = (*self.pods).clone();
        for pod in &mut pods {
            pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("batch/v1");
            pod["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
            let request = DeletionRequest {
                by_workload: true,
                ends_workload: true,
                joint: Some(JointState::Waits),
                ..DeletionRequest::new(DeletionKind::Delete, JOB_CONTROLLER, UnixNanos(1))
            };
            pod["metadata"]["annotations"][DELETION_REQUEST] = json!(request.to_text());
        }
        SlowApiServer { pods: Arc::new(pods), ..self }
    }

    fn reads(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            let (head, _) = request.into_parts();
            async move { Ok::<_, Infallible>(server.answer(&head).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: &Parts) -> Response<Body> {
        let (path, query) = (request.uri.path(), request.uri.query().unwrap_or_default());
        let name = path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default();
        let pod = self.pods.iter().find(|pod| pod["metadata"]["name"] == name);
        let answer = match (path, pod) {
            // Another writer, or the controller of the workload, has changed each pod meanwhile.
            (_, Some(_)) if request.method == Method::DELETE => return failure(StatusCode::CONFLICT),
            (_, Some(pod)) if request.method == Method::PATCH => {
                if name == "web-1" {
                    return failure(StatusCode::TOO_MANY_REQUESTS);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                self.written.fetch_add(1, Ordering::Relaxed);
                pod.clone()
            }
            (_, Some(pod)) => pod.clone(),
            ("/apis/batch/v1/namespaces/shop/jobs/web", _) if request.method == Method::GET => {
                tokio::time::sleep(self.delay).await;
                json!({
                    "metadata": {"name": "web", "namespace": "shop", "uid": "rs"},
                    "spec": {
                        "parallelism": self.wanted, "template": {"spec": {"restartPolicy": "OnFailure"}},
                        "selector": {"matchLabels": {CONTROL_LABEL: "true"}},
                    },
                })
            }
            ("/apis/apps/v1/namespaces/shop/replicasets/web", _) if request.method == Method::GET => {
                tokio::time::sleep(self.delay).await;
                json!({
                    "metadata": {"name": "web", "namespace": "shop", "uid": "rs"},
                    "spec": {"replicas": self.wanted, "selector": {"matchLabels": {CONTROL_LABEL: "true"}}},
                })
            }
            ("/api/v1/namespaces/shop/pods", _) => {
                assert!(query.contains("limit="), "{query}");
                // Two pages.
                let half = self.pods.len() / 2;
                if query.contains("continue=next") {
                    json!({"metadata": {"resourceVersion": "1"}, "items": self.listed(half..PODS)})
                } else {
                    self.lists.fetch_add(1, Ordering::Relaxed);
                    let metadata = json!({"resourceVersion": "1", "continue": "next"});
                    json!({"metadata": metadata, "items": self.listed(0..half)})
                }
            }
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", _) => {
                json!({"metadata": {}, "spec": {}, "status": {"allowed": true}})
            }
            _ => return failure(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Response::new(Body::from(answer.to_string().into_bytes()))
    }

    fn listed(&self, range: Range<usize>) -> Vec<Value> {
        let mut listed = self.pods[range.clone()].to_vec();
        for pod in listed.iter_mut().filter(|_| self.is_deleting) {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let requested = self.requested.load(Ordering::Relaxed).saturating_sub(range.start);
        for pod in listed.iter_mut().skip(requested) {
            let is_of_job = pod["metadata"]["ownerReferences"][0]["kind"] == "Job";
            let label = if is_of_job { Stage::Operate.key("pod-delete") } else { TO_DELETE.to_owned() };
            pod["metadata"]["labels"].as_object_mut().unwrap().remove(&label);
        }
        listed
    }

    fn cached(&self) -> Vec<CachedPod> {
        self.pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect()
    }
}

fn failure(code: StatusCode) -> Response<Body> {
    let status = json!({"status": "Failure", "message": "", "reason": "", "code": code.as_u16()});
    let mut failure = Response::new(Body::from(status.to_string().into_bytes()));
    *failure.status_mut() = code;
    failure
}

/// The first read may have begun before the others asked, so that there is a second one.
const READS: usize = 2;

#[tokio::test]
async fn pods_that_wait_for_a_slow_count_share_the_next_one() {
    for is_final in [false, true] {
        let server = SlowApiServer::new(PODS - 3, true);
        let (client, counts) = (server.client(), ReplicaCounts::default());
        let (waiting, _wakeups) = WaitingPods::new(client.clone());
        let pods = server.cached();
        let owner: &OwnerReference = pods[0].controller().unwrap();
        let rulings = join_all(pods.iter().map(async |pod| match is_final {
            false => counts.rule(&client, &waiting, pod, owner, false).await.unwrap(),
            true => counts.final_ruling(&client, pod, owner).await.unwrap(),
        }));
        let going = rulings.await.into_iter().filter(|ruling| *ruling == Ruling::Go).count();
        assert_eq!(going, 3);
        let reads = server.lists.load(Ordering::Relaxed);
        assert!(reads <= READS, "{reads} reads for {PODS} pods");
    }
}

#[tokio::test]
async fn pods_that_wait_for_a_count_share_its_failure() {
    // As long as the test: no answer.
    let server = SlowApiServer { delay: Duration::from_secs(3600), ..SlowApiServer::new(0, true) };
    let (client, counts) = (server.client(), ReplicaCounts::default());
    let (waiting, _wakeups) = WaitingPods::new(client.clone());
    let pods = server.cached();
    let owner: &OwnerReference = pods[0].controller().unwrap();
    let rulings = join_all(pods.iter().map(|pod| counts.rule(&client, &waiting, pod, owner, false)));
    let rulings = tokio::time::timeout(2 * API_TIMEOUT, rulings).await.unwrap();
    assert!(rulings.iter().all(|ruling| matches!(ruling, Err(ApiError::TimedOut { .. }))), "{rulings:?}");
}

#[tokio::test]
async fn pods_that_are_deleted_together_share_counts_and_all_of_them_are_written() {
    let server = SlowApiServer::new(PODS, true).of_job();
    let client = server.client();
    let new = || Deletions::new(client.clone(), cluster::lost_nodes(client.clone()), DeletionMetrics::new());
    let (deletions, _wakeups) = new();
    // The last pod is being drained.
    server.requested.store(PODS - 1, Ordering::Relaxed);
    let pods = server.cached();
    let outcomes = join_all(pods[..PODS - 1].iter().map(|pod| deletions.execute(pod))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let reads = server.reads();
    // The pod that made the first read for its own decision is earlier than the others.
    assert!(reads <= READS + 3, "{reads} reads for {PODS} pods");

    server.requested.store(PODS, Ordering::Relaxed);
    let (deletions, _wakeups) = new();
    assert!(deletions.execute(&pods[0]).await.is_err(), "one write fails");
    assert_eq!(server.written.load(Ordering::Relaxed), PODS - 2, "the other writes do not");
}

/// Otherwise each of them would write all of them.
#[tokio::test]
async fn one_of_the_pods_that_are_deleted_together_lets_all_of_them_go() {
    let server = SlowApiServer::new(PODS, true).of_job();
    let client = server.client();
    let (deletions, _wakeups) =
        Deletions::new(client.clone(), cluster::lost_nodes(client), DeletionMetrics::new());
    join_all(server.cached().iter().map(|pod| deletions.execute(pod))).await;
    let written = server.written.load(Ordering::Relaxed);
    // Each count is decided once, for all other pods; the write of one of them fails. The pod that made the first read for
    // its own decision is earlier than the others.
    assert!((PODS - 2..=(READS + 1) * (PODS - 1)).contains(&written), "{written} writes for {PODS} pods");
}

#[tokio::test]
async fn requests_that_wait_for_a_slow_count_share_the_next_one() {
    let server = SlowApiServer::new(PODS - 3, false);
    let writer = DeletionRequestWriter::new(server.client(), DeletionMetrics::new());
    let delete = deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER);
    let asked = (0..PODS).map(async |number| {
        let pod = PodKey { namespace: "shop".to_owned(), name: format!("web-{number}") };
        writer.request(&pod, None, &delete).await
    });
    let answers = join_all(asked).await;
    let recorded = answers.iter().filter(|answer| answer.is_ok()).count();
    let reads = server.lists.load(Ordering::Relaxed);
    assert!(reads <= READS, "{reads} reads for {PODS} requests");
    // Without a shared count, each request would find all three places.
    assert!((3..=4).contains(&recorded), "{answers:?}");
}

/// The controller of the workload often deletes a pod before Podward does.
#[tokio::test]
async fn deletes_that_meet_another_one_share_a_count() {
    for is_deleting in [false, true] {
        let server = SlowApiServer { delay: Duration::ZERO, is_deleting, ..SlowApiServer::new(0, true) };
        let client = server.client();
        let (deletions, _wakeups) =
            Deletions::new(client.clone(), cluster::lost_nodes(client), DeletionMetrics::new());
        for pod in server.cached() {
            let outcome = deletions.execute(&pod).await;
            assert!(outcome.as_ref().is_err_and(ApiError::is_conflict), "{outcome:?}");
        }
        let reads = server.lists.load(Ordering::Relaxed);
        assert!(reads <= READS, "{reads} reads for {PODS} pods, {is_deleting}");
    }
}
