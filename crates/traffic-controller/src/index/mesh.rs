//! The labels and annotations by which objects are in a mesh.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The labels and annotations by which a mesh selects namespaces and Services.
pub(super) const MESH_KEYS: [&str; 6] = [
    "istio-injection",
    "istio.io/rev",
    "istio.io/dataplane-mode",
    "istio.io/use-waypoint",
    "linkerd.io/inject",
    "kuma.io/sidecar-injection",
];

/// Returns the label or annotation by which an object is in a mesh.
pub(super) fn mesh_key(metadata: &ObjectMeta) -> Option<&'static str> {
    let value = |key: &str| {
        let pairs = [&metadata.labels, &metadata.annotations];
        pairs.into_iter().find_map(|pairs| pairs.as_ref()?.get(key)).map(String::as_str)
    };
    let is_off = |value: &str| matches!(value, "" | "disabled" | "false" | "none");
    MESH_KEYS.into_iter().find(|key| value(key).is_some_and(|value| !is_off(value)))
}
