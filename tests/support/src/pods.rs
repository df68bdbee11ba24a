//! Reads pods, and builds pods for tests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use podward_core::{ConditionStatus, PodFacts, PodView, keys};
use serde_json::{Value, json};

/// Returns the facts of a pod that the protocol uses.
#[must_use]
pub fn view(pod: &Pod) -> PodView<'_> {
    static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
    PodView {
        labels: pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS),
        available_conditions: pod.annotations().get(keys::AVAILABLE_CONDITIONS).map(String::as_str),
        finalizers: pod.finalizers(),
        has_gate: has_gate(pod),
        gate: condition(pod, keys::SERVICE_READY_GATE),
        ready: is_ready(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        facts: PodFacts::default(),
    }
}

/// Returns the status of the condition `name`.
#[must_use]
pub fn condition(pod: &Pod, name: &str) -> Option<ConditionStatus> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .find(|condition| condition.type_ == name)
        .map(|condition| ConditionStatus::parse(&condition.status))
}

/// Returns whether the pod is Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some(ConditionStatus::True)
}

/// Returns whether the pod was made with Podward's readiness gate.
#[must_use]
pub fn has_gate(pod: &Pod) -> bool {
    let mut gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.any(|gate| gate.condition_type == keys::SERVICE_READY_GATE)
}

/// Returns whether the label `key` is there.
#[must_use]
pub fn has_label(pod: &Pod, key: &str) -> bool {
    pod.labels().contains_key(key)
}

/// Returns whether the label `service-available` is there.
#[must_use]
pub fn is_available(pod: &Pod) -> bool {
    has_label(pod, keys::SERVICE_AVAILABLE)
}

/// Returns the finalizers by which consumers hold the pod.
pub fn holders(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.finalizers()
        .iter()
        .map(String::as_str)
        .filter(|finalizer| finalizer.starts_with(keys::PROT_FINALIZER_PREFIX))
}

/// Returns the first container's status.
#[must_use]
pub fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// Returns a pod's state in one line, for errors.
#[must_use]
pub fn describe(pod: &Pod) -> String {
    let labels: Vec<&str> = pod
        .labels()
        .keys()
        .filter(|key| !matches!(keys::Key::parse(key), keys::Key::Other))
        .map(|key| key.split_once(".podopslifecycle.kusionstack.io").map_or(key.as_str(), |(word, _)| word))
        .collect();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("unknown");
    let gate = condition(pod, keys::SERVICE_READY_GATE).map_or("absent", ConditionStatus::as_str);
    let waits = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let waits = waits.filter(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    let waits: Vec<&str> = waits.filter_map(|condition| condition.message.as_deref()).collect();
    format!(
        "{phase}, gate {gate}, Ready {}, labels {labels:?}, finalizers {:?}, container {}, waits: {}",
        is_ready(pod),
        pod.finalizers(),
        container(pod).map_or_else(|| "none".to_owned(), describe_container),
        if waits.is_empty() { "nothing said".to_owned() } else { waits.join("; ") },
    )
}

fn describe_container(status: &ContainerStatus) -> String {
    let state = status.state.as_ref();
    let waiting =
        state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.as_deref());
    let is_running = state.is_some_and(|state| state.running.is_some());
    let what = if is_running { "running" } else { waiting.unwrap_or("not running") };
    format!("{} {what}, ready {}", status.image, status.ready)
}

/// Returns the text of the annotation that makes `finalizer` expected, for the consumer `employer`
/// (`<Kind>/<namespace>/<name>`).
#[must_use]
pub fn expecting(employer: &str, finalizer: &str) -> String {
    json!({"expectedFinalizers": {employer: finalizer}}).to_string()
}

/// Returns the `spec` of a pod that runs the demo server.
#[must_use]
pub fn server_spec(image: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "server",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "ports": [{"containerPort": 8080}],
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            // The timeout is long, so that a busy machine does not make a pod unavailable.
            "readinessProbe": {
                "httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 1,
            },
        }],
    })
}
