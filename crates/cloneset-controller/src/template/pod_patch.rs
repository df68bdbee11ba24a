//! Patches of pods.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::metadata::REMOVED_FINALIZERS;
use super::resources::Resources;
use crate::pod::Pod;

/// A patch of a pod that has not changed since it was read.
///
/// It is written as a strategic merge patch: one write changes metadata and images, containers are found by their names
/// wherever admission has put others between them, and maps need not exist. A JSON patch needs the indexes of
/// containers and a test for each, and a merge patch replaces all containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodPatch {
    /// The UID of the pod.
    pub(crate) uid: Option<String>,
    /// The resource version of the pod. After a resize, it has to be that of the answer.
    pub(crate) resource_version: Option<String>,
    /// The labels. `None`: the label is removed.
    pub(crate) labels: BTreeMap<String, Option<String>>,
    /// The annotations. `None`: the annotation is removed.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
    /// The finalizers that are added (true) or removed (false).
    pub(crate) finalizers: BTreeMap<String, bool>,
    /// The images, by the names of containers.
    pub(crate) images: BTreeMap<String, String>,
}

impl PodPatch {
    /// Returns a patch of the pod that changes nothing.
    #[must_use]
    pub(crate) fn of(pod: &Pod) -> Self {
        Self { uid: pod.uid(), resource_version: pod.resource_version(), ..Self::default() }
    }

    /// Returns true if it changes nothing.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.annotations.is_empty()
            && self.finalizers.is_empty()
            && self.images.is_empty()
    }

    /// Adds the label, unless the pod already has it.
    pub(super) fn set_label(&mut self, pod: &Pod, key: &str, value: &str) {
        if pod.labels().get(key).map(String::as_str) != Some(value) {
            self.labels.insert(key.to_owned(), Some(value.to_owned()));
        }
    }

    /// Returns the strategic merge patch.
    #[must_use]
    pub(crate) fn to_json(&self) -> Value {
        let mut metadata = precondition(self.uid.as_deref(), self.resource_version.as_deref());
        let names = |is_added: bool| {
            let names = self.finalizers.iter().filter(|(_, it)| **it == is_added).map(|(name, _)| name);
            json!(names.collect::<Vec<_>>())
        };
        let fields = [
            ("labels", json!(self.labels)),
            ("annotations", json!(self.annotations)),
            ("finalizers", names(true)),
            (REMOVED_FINALIZERS, names(false)),
        ];
        for (key, value) in fields {
            if value != json!({}) && value != json!([]) {
                metadata.insert(key.to_owned(), value);
            }
        }
        let mut patch = json!({"metadata": metadata});
        if !self.images.is_empty() {
            let container = |(name, image): (&String, &String)| json!({"name": name, "image": image});
            patch["spec"] = json!({"containers": self.images.iter().map(container).collect::<Vec<_>>()});
        }
        patch
    }
}

/// Returns the strategic merge patch of the subresource `resize` of the pod. `None` if no resources change.
pub(super) fn resize_patch(pod: &Pod, resources: &BTreeMap<String, Resources>) -> Option<Value> {
    let container = |(name, resources): (&String, &Resources)| json!({"name": name, "resources": resources});
    let containers: Vec<_> = resources.iter().map(container).collect();
    let metadata = precondition(pod.metadata.uid.as_deref(), pod.metadata.resource_version.as_deref());
    (!containers.is_empty()).then(|| json!({"metadata": metadata, "spec": {"containers": containers}}))
}

fn precondition(uid: Option<&str>, resource_version: Option<&str>) -> Map<String, Value> {
    let fields = [("uid", uid), ("resourceVersion", resource_version)];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_its_precondition() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        }))
        .unwrap();
        let mut patch = PodPatch::of(&pod);
        patch.set_label(&pod, "a", "b");
        assert!(patch.is_empty());
        assert_eq!(patch.to_json(), json!({"metadata": {"uid": "u", "resourceVersion": "7"}}));
        patch.set_label(&pod, "a", "c");
        patch.annotations.insert("old".to_owned(), None);
        patch.finalizers = [("x".to_owned(), true), ("y".to_owned(), false)].into();
        patch.images.insert("app".to_owned(), "app:2".to_owned());
        assert!(!patch.is_empty());
        let expected = json!({
            "metadata": {
                "uid": "u", "resourceVersion": "7", "labels": {"a": "c"}, "annotations": {"old": null},
                "finalizers": ["x"], "$deleteFromPrimitiveList/finalizers": ["y"],
            },
            "spec": {"containers": [{"name": "app", "image": "app:2"}]},
        });
        assert_eq!(patch.to_json(), expected);
        assert_eq!(PodPatch::default().to_json(), json!({"metadata": {}}));
    }

    #[test]
    fn a_resize_contains_only_what_changes() {
        assert_eq!(resize_patch(&Pod::default(), &BTreeMap::new()), None);
        let cpu = Resources { requests: [("cpu".to_owned(), "2".to_owned())].into(), ..Resources::default() };
        let expected = json!({
            "metadata": {}, "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]},
        });
        assert_eq!(resize_patch(&Pod::default(), &[("app".to_owned(), cpu)].into()), Some(expected));
    }
}
