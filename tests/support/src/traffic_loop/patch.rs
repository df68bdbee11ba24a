//! Writes of one finalizer that keep the others.

use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::Patch};
use serde_json::{Value, json};

/// Returns the patch that adds or removes `finalizer`, or `None` if nothing has to change. A removal applies to each
/// version of the pod, because it changes no other entry. An addition applies only to this version: the pod may have
/// left service since.
pub(super) fn set_finalizer(pod: &Pod, finalizer: &str, wanted: bool) -> Option<Patch<Value>> {
    let is_present = pod.finalizers().iter().any(|present| present == finalizer);
    match (is_present, wanted) {
        (true, true) | (false, false) => None,
        (true, false) => Some(Patch::Strategic(json!({
            "metadata": {"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [finalizer]},
        }))),
        (false, true) => Some(Patch::Json(addition(pod, finalizer))),
    }
}

fn addition(pod: &Pod, finalizer: &str) -> JsonPatch {
    let test = |name, value| {
        PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(["metadata", name]), value })
    };
    let (path, value) = if pod.metadata.finalizers.is_none() {
        (path(&[]), json!([finalizer]))
    } else {
        (path(&["-"]), json!(finalizer))
    };
    JsonPatch(vec![
        test("uid", json!(pod.uid())),
        test("resourceVersion", json!(pod.resource_version())),
        PatchOperation::Add(AddOperation { path, value }),
    ])
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

    fn added(pod: &Pod) -> Value {
        let mut document = serde_json::to_value(pod).unwrap();
        json_patch::patch(&mut document, &addition(pod, "mine")).unwrap();
        document["metadata"]["finalizers"].clone()
    }

    #[test]
    fn an_addition_keeps_the_others() {
        assert_eq!(added(&pod(None)), json!(["mine"]));
        assert_eq!(added(&pod(Some(&["x"]))), json!(["x", "mine"]));
    }

    #[test]
    fn a_removal_names_only_its_own() {
        let patch = set_finalizer(&pod(Some(&["x", "mine", "y"])), "mine", false).unwrap();
        let removal = json!({"metadata": {"uid": "u", "$deleteFromPrimitiveList/finalizers": ["mine"]}});
        assert!(matches!(&patch, Patch::Strategic(patch) if *patch == removal), "{patch:?}");
    }

    #[test]
    fn no_patch_if_nothing_changes() {
        assert!(set_finalizer(&pod(Some(&["mine"])), "mine", true).is_none());
        assert!(set_finalizer(&pod(None), "mine", false).is_none());
    }

    #[test]
    fn an_addition_to_an_older_version_is_refused() {
        let mut newer = serde_json::to_value(pod(Some(&["x"]))).unwrap();
        newer["metadata"]["resourceVersion"] = json!("2");
        assert!(json_patch::patch(&mut newer, &addition(&pod(Some(&["x"])), "mine")).is_err());
    }
}
