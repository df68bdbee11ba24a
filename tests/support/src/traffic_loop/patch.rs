//! Writes of one finalizer that keep the others.

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Returns the patch that adds or removes `finalizer`, or `None` if nothing has to change. It only applies while the
/// list of finalizers is the one in `pod`, so that an outdated view neither adds an entry twice nor removes
/// another's. An addition only applies to this version of the pod: the pod may have left service since.
pub(super) fn set_finalizer(pod: &Pod, finalizer: &str, wanted: bool) -> Option<Patch> {
    let finalizers = pod.finalizers();
    let place = finalizers.iter().position(|present| present == finalizer);
    let list = pod.metadata.finalizers.as_ref().map_or(Value::Null, |list| json!(list));
    let change = match (place, wanted) {
        (Some(_), true) | (None, false) => return None,
        (Some(place), false) => PatchOperation::Remove(RemoveOperation { path: path(&[&place.to_string()]) }),
        (None, true) if list.is_null() => {
            PatchOperation::Add(AddOperation { path: path(&[]), value: json!([finalizer]) })
        }
        (None, true) => PatchOperation::Add(AddOperation { path: path(&["-"]), value: json!(finalizer) }),
    };
    let field = |name, value| {
        PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(["metadata", name]), value })
    };
    let version = wanted.then(|| field("resourceVersion", json!(pod.resource_version())));
    let unchanged = [field("uid", json!(pod.uid())), field("finalizers", list)];
    Some(Patch(unchanged.into_iter().chain(version).chain([change]).collect()))
}

fn path(rest: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(["metadata", "finalizers"].iter().chain(rest).copied())
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

    fn after(pod: &Pod, wanted: bool) -> Value {
        let mut document = serde_json::to_value(pod).unwrap();
        if document["metadata"].get("finalizers").is_none() {
            // In a test operation, the API server's patch library takes a missing field as null. The library here
            // does not.
            document["metadata"]["finalizers"] = Value::Null;
        }
        if let Some(patch) = set_finalizer(pod, "mine", wanted) {
            json_patch::patch(&mut document, &patch).unwrap();
        }
        document["metadata"]["finalizers"].clone()
    }

    #[test]
    fn adds_and_removes_only_its_own() {
        assert_eq!(after(&pod(None), true), json!(["mine"]));
        assert_eq!(after(&pod(Some(&["x"])), true), json!(["x", "mine"]));
        assert_eq!(after(&pod(Some(&["x", "mine", "y"])), false), json!(["x", "y"]));
    }

    #[test]
    fn no_patch_if_nothing_changes() {
        assert!(set_finalizer(&pod(Some(&["mine"])), "mine", true).is_none());
        assert!(set_finalizer(&pod(None), "mine", false).is_none());
    }

    #[test]
    fn a_stale_view_is_refused() {
        let patch = set_finalizer(&pod(Some(&["mine", "x"])), "mine", false).unwrap();
        let mut newer = serde_json::to_value(pod(Some(&["x", "mine"]))).unwrap();
        assert!(json_patch::patch(&mut newer, &patch).is_err());
        let patch = set_finalizer(&pod(Some(&["x"])), "mine", true).unwrap();
        let mut newer = serde_json::to_value(pod(Some(&["x"]))).unwrap();
        newer["metadata"]["resourceVersion"] = json!("2");
        assert!(json_patch::patch(&mut newer, &patch).is_err());
    }
}
