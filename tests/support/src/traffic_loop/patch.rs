//! Writes of one finalizer that keep the others.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Returns the strategic merge patch that adds or removes `finalizer`, or `None` if nothing has to change. It changes no
/// other finalizer and no other pod of the same name. An addition only applies to this version of the pod: the pod may
/// have left service since. A removal applies to every version.
pub(super) fn set_finalizer(pod: &Pod, finalizer: &str, wanted: bool) -> Option<Value> {
    let is_there = pod.finalizers().iter().any(|present| present == finalizer);
    let uid = &pod.metadata.uid;
    match (is_there, wanted) {
        (true, true) | (false, false) => None,
        (true, false) => {
            Some(json!({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}}))
        }
        (false, true) => {
            let version = pod.resource_version();
            Some(json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": [finalizer]}}))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(finalizers: Option<&[&str]>) -> Pod {
        serde_json::from_value(json!({"metadata": {
            "name": "a", "uid": "u", "resourceVersion": "1", "finalizers": finalizers,
        }}))
        .unwrap()
    }

    #[test]
    fn adds_only_its_own_to_the_version_that_it_has_seen() {
        let patch = json!({"metadata": {"uid": "u", "resourceVersion": "1", "finalizers": ["mine"]}});
        assert_eq!(set_finalizer(&pod(None), "mine", true), Some(patch.clone()));
        assert_eq!(set_finalizer(&pod(Some(&["x"])), "mine", true), Some(patch));
    }

    #[test]
    fn removes_only_its_own_from_any_version_of_the_pod() {
        let patch = json!({"metadata": {"uid": "u", "$deleteFromPrimitiveList/finalizers": ["mine"]}});
        assert_eq!(set_finalizer(&pod(Some(&["x", "mine", "y"])), "mine", false), Some(patch));
    }

    #[test]
    fn no_patch_if_nothing_changes() {
        assert!(set_finalizer(&pod(Some(&["mine"])), "mine", true).is_none());
        assert!(set_finalizer(&pod(None), "mine", false).is_none());
    }
}
