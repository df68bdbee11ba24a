//! Admission reviews for tests.

use podward_core::keys::{CONTROL_LABEL, SERVICE_READY_GATE};
use serde_json::{Value, json};

pub(crate) const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";
pub(crate) const OPERATOR: &str = "system:serviceaccount:default:operator";
pub(crate) const CONTROLLER: &str = "system:serviceaccount:podward-system:lifecycle-controller";

/// Returns an opted-in pod with additional labels.
pub(crate) fn pod(labels: &[(&str, &str)]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "7", "labels": {CONTROL_LABEL: "true"},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:x": {}}}}],
        },
        "spec": {
            "containers": [{"name": "web", "image": "web:1"}],
            "readinessGates": [{"conditionType": SERVICE_READY_GATE}],
        },
        "status": {"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": SERVICE_READY_GATE, "status": "True"},
        ]},
    });
    for (key, value) in labels {
        pod["metadata"]["labels"][*key] = json!(value);
    }
    pod
}

/// Returns a review of a write to a pod.
pub(crate) fn review(operation: &str, old: Value, new: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web-0", "namespace": "shop", "operation": operation,
            "userInfo": {"username": OPERATOR, "groups": ["system:authenticated"]},
            "object": new, "oldObject": old, "dryRun": false,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}
