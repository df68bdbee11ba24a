//! The labels and annotations by which meshes and load balancers send traffic to pods directly.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// The annotation of Services whose pods are in network endpoint groups of GKE. The controller of the groups writes it.
const GROUPS: &str = "cloud.google.com/neg-status";
const KUMA: &str = "kuma.io/sidecar-injection";

/// The labels and annotations by which a mesh selects namespaces and Services, and those that a load balancer has
/// written. Those that say most come first.
pub(super) const MESH_KEYS: [&str; 7] = [
    GROUPS,
    KUMA,
    "istio-injection",
    "istio.io/rev",
    "istio.io/dataplane-mode",
    "istio.io/use-waypoint",
    "linkerd.io/inject",
];

/// Returns the label or annotation by which an object is in a mesh, or its pods are behind a load balancer.
pub(super) fn mesh_key(metadata: &ObjectMeta) -> Option<&'static str> {
    let value = |key: &str| {
        let pairs = [&metadata.labels, &metadata.annotations];
        pairs.into_iter().find_map(|pairs| pairs.as_ref()?.get(key)).map(String::as_str)
    };
    let is_off = |key: &str, value: &str| {
        matches!(value, "" | "disabled" | "false" | "none") || key == GROUPS && has_only_nodes(value)
    };
    MESH_KEYS.into_iter().find(|key| value(key).is_some_and(|value| !is_off(key, value)))
}

/// Returns true if the groups consist of nodes: their key is 0 instead of a port. Nodes use kube-proxy.
fn has_only_nodes(status: &str) -> bool {
    let status: Value = serde_json::from_str(status).unwrap_or_default();
    let groups = status.get("network_endpoint_groups").and_then(Value::as_object);
    groups.is_some_and(|groups| groups.keys().all(|port| port == "0"))
}

/// Returns true if the senders of `key` use pods that are not Ready, as long as their containers are, or they do not
/// terminate.
pub(super) fn ignores_gates(key: &str) -> bool {
    matches!(key, GROUPS | KUMA)
}

/// Returns what sends the traffic where an object has `key`.
pub(super) fn sender(key: &str) -> &'static str {
    if key == GROUPS { "load balancer" } else { "mesh" }
}
