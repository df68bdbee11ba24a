//! A review of a write to a typical pod: two containers, a dozen environment variables, three field managers.

use anyhow::{Context, Result};
use podward_core::keys::{
    CONTROL_LABEL, DELETE_OPERATION, DELETE_TYPE, DELETION_REQUEST, SERVICE_READY_GATE, Stage,
};
use serde_json::{Map, Value, json};

/// The size of a review, in bytes.
pub const REVIEW_BYTES: usize = 20_700;

/// The size of the pod in a review of a delete, in bytes.
pub const DELETED_POD_BYTES: usize = 10_700;

pub(super) const NODE: &str = "node-17";
pub(super) const NAMESPACE: &str = "shop";

/// Returns a review in which an operator begins an operation. The answer contains a patch.
///
/// # Errors
/// Fails if the pod is larger than [`REVIEW_BYTES`].
pub fn begin() -> Result<Vec<u8>> {
    let mut new = pod();
    new["metadata"]["labels"][Stage::Operating.key("rollout")] = json!("1700000000000000000");
    new["metadata"]["labels"][Stage::OperationType.key("rollout")] = json!("update");
    review(pod(), new)
}

/// Returns a review in which an operator changes an annotation. There is nothing to do.
///
/// # Errors
/// Fails if the pod is larger than [`REVIEW_BYTES`].
pub fn unchanged() -> Result<Vec<u8>> {
    let mut new = pod();
    new["metadata"]["annotations"]["example.com/touched"] = json!("yes");
    review(pod(), new)
}

/// Returns a review of a delete of a pod that is held and has the deletion request already. The review alone
/// determines the answer.
///
/// # Errors
/// Fails if the pod is larger than [`DELETED_POD_BYTES`].
pub fn delete_held() -> Result<Vec<u8>> {
    let mut pod = pod();
    pod["metadata"]["labels"][Stage::Operating.key(DELETE_OPERATION)] = json!("1763626530000000000");
    pod["metadata"]["labels"][Stage::OperationType.key(DELETE_OPERATION)] = json!(DELETE_TYPE);
    pod["metadata"]["annotations"][DELETION_REQUEST] =
        json!(r#"{"kind":"Delete","requestedBy":"jane","requestedAt":1763626530000000000}"#);
    delete(pod)
}

/// Returns a review of a delete of a pod that is out of service. It is allowed.
///
/// # Errors
/// Fails if the pod is larger than [`DELETED_POD_BYTES`].
pub fn delete_granted() -> Result<Vec<u8>> {
    let mut pod = pod();
    pod["metadata"]["finalizers"] = json!([]);
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == SERVICE_READY_GATE {
            condition["status"] = json!("False");
        }
    }
    for stage in [Stage::Operating, Stage::Operate] {
        pod["metadata"]["labels"][stage.key(DELETE_OPERATION)] = json!("1763626530000000000");
    }
    delete(pod)
}

fn delete(mut pod: Value) -> Result<Vec<u8>> {
    let size = serde_json::to_vec(&pod)?.len();
    let missing =
        DELETED_POD_BYTES.checked_sub(size).with_context(|| format!("the pod is {size} bytes already"))?;
    pod["metadata"]["annotations"]["example.com/config"] = json!("c".repeat(missing));
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
    Ok(serde_json::to_vec(&request("DELETE", Value::Null, pod, &options))?)
}

fn review(old: Value, new: Value) -> Result<Vec<u8>> {
    let options =
        json!({"kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "rollout-operator"});
    let mut review = request("UPDATE", new, old, &options);
    let size = serde_json::to_vec(&review)?.len();
    let missing =
        REVIEW_BYTES.checked_sub(size).with_context(|| format!("the review is {size} bytes already"))?;
    for (object, share) in [("object", missing / 2), ("oldObject", missing - missing / 2)] {
        // Annotations of other systems are the main reason for different sizes of pods.
        review["request"][object]["metadata"]["annotations"]["example.com/config"] = json!("c".repeat(share));
    }
    Ok(serde_json::to_vec(&review)?)
}

fn request(operation: &str, new: Value, old: Value, options: &Value) -> Value {
    let group_version = |key: &str, value: &str| json!({"group": "", "version": "v1", key: value});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": group_version("kind", "Pod"), "resource": group_version("resource", "pods"),
            "requestKind": group_version("kind", "Pod"), "requestResource": group_version("resource", "pods"),
            "name": "checkout-7d9c5b8f6d-x2x8q", "namespace": NAMESPACE, "operation": operation,
            "userInfo": {
                "username": "system:serviceaccount:rollouts:rollout-operator",
                "uid": "0a1b2c3d-0000-4000-8000-000000000000",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:rollouts", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/pod-name": ["rollout-operator-5c9f7d6b8-k2w7p"]},
            },
            "object": new, "oldObject": old, "dryRun": false,
            "options": options,
        },
    })
}

fn pod() -> Value {
    let ids = ["7d9c5b8f6d", "2f6e1c3a-8a1b-4b7e-9a55-7d3d2f0c9b11"];
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "checkout-7d9c5b8f6d-x2x8q", "generateName": "checkout-7d9c5b8f6d-", "namespace": NAMESPACE,
            "uid": "f3b1c9de-1f4e-4c61-9b1c-0f5f6a7b8c9d", "resourceVersion": "48151623",
            "creationTimestamp": "2025-11-20T08:15:30Z", "generation": 1,
            "labels": {
                CONTROL_LABEL: "true", "app.kubernetes.io/name": "checkout", "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": ids[0], "podopslifecycle.kusionstack.io/service-available": "1763626530000000000",
            },
            "annotations": {
                "prometheus.io/scrape": "true", "prometheus.io/port": "9090", "example.com/config": "",
                "pod.kusionstack.io/available-conditions":
                    r#"{"expectedFinalizers":{"Service/shop/checkout":"prot.podopslifecycle.kusionstack.io/8dc95d81400c7fe5"}}"#,
            },
            "finalizers": ["prot.podopslifecycle.kusionstack.io/8dc95d81400c7fe5"],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-7d9c5b8f6d", "uid": ids[1],
                "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": managed_fields(),
        },
        "spec": {
            "containers": [container("checkout", 12), container("metrics-proxy", 3)],
            "volumes": [{
                "name": "kube-api-access-8xk2p",
                "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]},
            }],
            "readinessGates": [{"conditionType": SERVICE_READY_GATE}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "checkout", "serviceAccount": "checkout", "nodeName": NODE,
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": (["not-ready", "unreachable"].map(|taint| json!({
                "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300,
            }))),
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.3.17", "podIP": "10.244.3.61", "qosClass": "Burstable",
            "podIPs": [{"ip": "10.244.3.61"}], "hostIPs": [{"ip": "10.0.3.17"}],
            "startTime": "2025-11-20T08:15:30Z",
            "conditions": condition_types().map(|name| json!({
                "type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2025-11-20T08:15:41Z",
            })),
            "containerStatuses": (["checkout", "metrics-proxy"].map(|name| json!({
                "name": name, "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2025-11-20T08:15:36Z"}}, "lastState": {},
                "image": format!("registry.example.com/shop/{name}:2.14.3"),
                "imageID": format!("registry.example.com/shop/{name}@sha256:{}", "3f".repeat(32)),
                "containerID": format!("containerd://{}", "a7".repeat(32)),
            }))),
        },
    })
}

fn condition_types() -> [&'static str; 6] {
    [
        SERVICE_READY_GATE,
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
}

fn container(name: &str, variables: usize) -> Value {
    let probe = json!({
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 5,
        "successThreshold": 1, "failureThreshold": 3,
    });
    json!({
        "name": name, "image": format!("registry.example.com/shop/{name}:2.14.3"), "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": (0..variables).map(|n| json!({
            "name": format!("CHECKOUT_SETTING_{n}"), "value": format!("https://config.shop.svc:8443/v1/settings/{n}"),
        })).collect::<Vec<_>>(),
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": [{
            "name": "kube-api-access-8xk2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        }],
        "readinessProbe": probe, "livenessProbe": probe,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

/// Returns the field managers as the API server stores them: nested, with many escaped quotes.
fn managed_fields() -> Value {
    let leaf = || json!({});
    let fields = |names: &[&str]| -> Map<String, Value> {
        names.iter().map(|name| (format!("f:{name}"), leaf())).collect()
    };
    let keyed = |key: &str, name: &str, inner: &[&str]| {
        let mut owned = fields(inner);
        owned.insert(".".to_owned(), leaf());
        (format!(r#"k:{{"{key}":"{name}"}}"#), Value::from(owned))
    };
    let containers: Map<String, Value> = [("checkout", 12), ("metrics-proxy", 3)]
        .map(|(name, variables)| {
            let (key, mut container) = keyed(
                "name",
                name,
                &[
                    "image",
                    "imagePullPolicy",
                    "livenessProbe",
                    "name",
                    "readinessProbe",
                    "resources",
                    "terminationMessagePath",
                    "terminationMessagePolicy",
                ],
            );
            container["f:env"] = (0..variables)
                .map(|n| keyed("name", &format!("CHECKOUT_SETTING_{n}"), &["name", "value"]))
                .collect();
            (key, container)
        })
        .into_iter()
        .collect();
    let conditions: Map<String, Value> = condition_types()
        .map(|name| keyed("type", name, &["lastProbeTime", "lastTransitionTime", "status", "type"]))
        .into_iter()
        .collect();
    let entry = |manager: &str, sub_resource: Option<&str>, owned: Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2025-11-20T08:15:41Z",
            "fieldsType": "FieldsV1", "fieldsV1": owned, "subresource": sub_resource,
        })
    };
    json!([
        entry(
            "kube-controller-manager",
            None,
            json!({
                "f:metadata": {"f:generateName": {}, "f:labels": fields(&["kusionstack.io/control", "pod-template-hash"])},
                "f:spec": {"f:containers": containers, "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}},
            })
        ),
        entry("lifecycle-controller", Some("status"), json!({"f:status": {"f:conditions": {}}})),
        entry(
            "kubelet",
            Some("status"),
            json!({
                "f:status": {"f:conditions": conditions, "f:containerStatuses": {}, "f:phase": {}, "f:podIP": {}},
            })
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_have_the_documented_size() {
        for review in [begin().unwrap(), unchanged().unwrap()] {
            assert_eq!(review.len(), REVIEW_BYTES);
            let review: Value = serde_json::from_slice(&review).unwrap();
            let filler = review["request"]["object"]["metadata"]["annotations"]["example.com/config"]
                .as_str()
                .unwrap();
            assert!(filler.len() < 1000, "a pod of {} bytes of filler is not a usual one", filler.len());
        }
    }

    #[test]
    fn so_do_pods_that_are_deleted() {
        for review in [delete_held().unwrap(), delete_granted().unwrap()] {
            let review: Value = serde_json::from_slice(&review).unwrap();
            assert!(review["request"]["object"].is_null());
            assert_eq!(serde_json::to_vec(&review["request"]["oldObject"]).unwrap().len(), DELETED_POD_BYTES);
        }
    }
}
