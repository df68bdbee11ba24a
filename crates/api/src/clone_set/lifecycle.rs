//! The hooks of a set.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::{is_default, null_as_default};
use super::schema::labels;

/// The hooks of a set. They can be changed at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetLifecycle {
    /// Releases a pod before it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_delete: Option<CloneSetHook>,
    /// Releases a pod before its containers are replaced, and confirms it afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<CloneSetHook>,
    /// Confirms a new pod. Until then, the pod is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_normal: Option<CloneSetHook>,
}

/// A hook: the markers that an operator puts on a pod that is in use. While any of them is left, the pod is neither
/// updated nor deleted. When all of them are there, the pod is confirmed. A hook without markers does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!has(self.markPodNotReady) || !self.markPodNotReady || \
                            has(self.labelsHandler) && self.labelsHandler.size() > 0 || \
                            has(self.finalizersHandler) && self.finalizersHandler.size() > 0")
        .message("markPodNotReady has no effect without a marker, because nothing is waited for; set labelsHandler or \
                  finalizersHandler")
)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetHook {
    /// Markers: labels.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = labels)]
    #[x_kube(
        validation = Rule::new("self.all(key, key.size() <= 317 && \
            key.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))")
            .message("a key must be one of a label, such as example.com/in-use"),
        validation = Rule::new("self.all(key, self[key].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))")
            .message("a value must be one of a label: letters, digits, '-', '_' and '.', with a letter or digit at \
                      both ends")
    )]
    pub labels_handler: BTreeMap<String, String>,
    /// Markers: finalizers. Pods accept only those with a domain, such as `example.com/in-use`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 317)))]
    #[x_kube(
        validation = Rule::new("self.all(name, \
            name.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))")
            .message("a finalizer must have a domain and a name, such as example.com/in-use; pods accept no other")
    )]
    pub finalizers_handler: Vec<String>,
    /// True if the pod is not Ready from when the hook is asked to release it. It has no effect on `preNormal`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub mark_pod_not_ready: bool,
}
