//! The webhook with a fake cluster and a fake controller, and reviews for it.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use podward_core::ReviewPolicy;
use podward_core::keys::{CONTROL_LABEL, SERVICE_READY_GATE};
use podward_runtime::WebhookSetup;
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService, Webhooks};
use podward_runtime::telemetry::traces::Spans;
use podward_support::metrics_text;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use validating_webhook::{DeletionHold, HoldOptions, PodWebhook, RequestRecorder};

use crate::fake_cluster::FakeCluster;
use crate::fake_controller::FakeController;

pub(crate) const UID: &str = "u-1";
pub(crate) const POD: &str = "/api/v1/namespaces/shop/pods/web-0";

/// The webhook, and what it depends on.
pub(crate) struct Fixture {
    pub(crate) cluster: FakeCluster,
    pub(crate) controller: FakeController,
    pub(crate) stop: CancellationToken,
    pub(crate) setup: WebhookSetup,
    service: AdmissionService,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(Duration::ZERO, AdmissionLimits::default()).await
    }

    pub(crate) async fn with(wait: Duration, limits: AdmissionLimits) -> Self {
        let controller = FakeController::start().await;
        let recorder = controller.recorder();
        Self::of(controller, recorder, wait, limits).await
    }

    /// Returns a fixture that sends `spans`.
    pub(crate) async fn traced(spans: Spans, wait: Duration, limits: AdmissionLimits) -> Self {
        let controller = FakeController::start().await;
        let recorder = controller.recorder();
        Self::sending(spans, controller, recorder, wait, limits).await
    }

    pub(crate) async fn of(
        controller: FakeController,
        recorder: impl RequestRecorder,
        wait: Duration,
        limits: AdmissionLimits,
    ) -> Self {
        Self::sending(Spans::none(), controller, recorder, wait, limits).await
    }

    async fn sending(
        spans: Spans,
        controller: FakeController,
        recorder: impl RequestRecorder,
        wait: Duration,
        limits: AdmissionLimits,
    ) -> Self {
        let cluster = FakeCluster::new();
        let stop = CancellationToken::new();
        let mut setup = WebhookSetup::new("test", "1", stop.clone());
        let options = HoldOptions { unreachable_limit: Duration::from_secs(60), wait };
        let hold = DeletionHold::new(options, cluster.client(), recorder, &mut setup);
        until(|| setup.readiness.missing().is_empty()).await;
        let webhook = PodWebhook::new(ReviewPolicy::default()).with_hold(hold);
        let webhooks = Webhooks::default().and(webhook);
        let service = AdmissionService::of(webhooks, AdmissionMetrics::default(), limits, spans);
        Self { cluster, controller, stop, setup, service }
    }

    /// Sends a review. Returns the status and the body of the response.
    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
        let request = Request::post(path).header("content-type", "application/json");
        let response = self.service.handle(request.body(Full::from(body)).unwrap()).await;
        (response.status(), response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    /// Returns the `response` to a valid review.
    pub(crate) async fn ask(&self, path: &str, review: &Value) -> Value {
        let (status, body) = self.post(path, review.to_string().into_bytes()).await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &json!(UID)), "{answer}");
        answer["response"].clone()
    }

    pub(crate) async fn delete(&self, pod: &Value) -> Value {
        self.ask("/delete", &delete_review(pod)).await
    }

    pub(crate) async fn evict(&self) -> Value {
        self.ask("/evict", &evict_review("policy/v1", json!({}))).await
    }

    /// Returns the metrics as text.
    pub(crate) fn metrics(&self) -> String {
        metrics_text(&self.setup.registry)
    }
}

/// Waits until `holds` returns true, with a time limit for failures.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
}

/// Returns a pod that serves.
pub(crate) fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "7", "labels": {CONTROL_LABEL: "true"},
            "finalizers": ["prot.podopslifecycle.kusionstack.io/a"], "annotations": {},
        },
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"phase": "Running", "conditions": [{"type": SERVICE_READY_GATE, "status": "True"}]},
    })
}

/// Takes `pod` out of service: the gate is off, and its consumer has released it.
pub(crate) fn take_out(pod: &mut Value) {
    pod["metadata"]["finalizers"] = json!([]);
    pod["status"]["conditions"][0]["status"] = json!("False");
}

pub(crate) fn delete_review(pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": "DELETE", "name": "web-0", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "jane", "uid": "jane-1", "groups": ["admins"], "extra": {"scopes": ["all"]}},
            "object": null, "oldObject": pod, "dryRun": false,
            "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 5},
        },
    })
}

pub(crate) fn evict_review(version: &str, options: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": "CREATE", "name": "web-0", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
            "userInfo": {"username": "drainer"}, "oldObject": null, "dryRun": false,
            "object": {
                "apiVersion": version, "kind": "Eviction", "metadata": {"name": "web-0"}, "deleteOptions": options,
            },
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}
