//! The pod of a request, for the traces of its operations.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::PatchOperation;
use podward_core::trace::{operation_of, run_label};

use super::response::AdmissionResponse;

/// The pod of a request, with the labels of its operations.
#[derive(Clone, Copy, Debug)]
pub struct TracedPod<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its labels after the write; `None` on DELETE.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Its stored labels; `None` on CREATE.
    pub old_labels: Option<&'a BTreeMap<String, String>>,
}

impl TracedPod<'_> {
    /// Returns the IDs of the operations that the request or the response's patch changes.
    pub(super) fn operations<'s>(&'s self, response: &'s AdmissionResponse) -> BTreeSet<String> {
        let labels = self.labels.into_iter().chain(self.old_labels).flatten();
        let differs = |key: &String| {
            self.labels.and_then(|labels| labels.get(key))
                != self.old_labels.and_then(|labels| labels.get(key))
        };
        let written = labels.map(|(key, _)| key).filter(|key| differs(key)).cloned();
        let patch = response.patch.iter().flat_map(|patch| patch.0.iter());
        let patched = patch.flat_map(|operation| -> Vec<String> {
            let named = |path: &json_patch::jsonptr::Pointer| {
                path.tokens().last().map(|token| token.decoded().into_owned()).unwrap_or_default()
            };
            match operation {
                // All labels at once, if there were none.
                PatchOperation::Add(add) if add.value.is_object() => {
                    add.value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
                }
                other => vec![named(other.path())],
            }
        });
        written.chain(patched).filter_map(|key| operation_of(&key).map(ToOwned::to_owned)).collect()
    }

    /// Returns the run of the operation `id`; `None` if there is none.
    pub(super) fn run(&self, id: &str) -> Option<&str> {
        let label = run_label(id);
        let labels = self.labels.into_iter().chain(self.old_labels);
        labels.filter_map(|labels| labels.get(&label)).map(String::as_str).next()
    }
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use serde_json::json;

    use super::*;

    fn labels(keys: &[&str]) -> BTreeMap<String, String> {
        let label = |key: &&str| (format!("{key}.podopslifecycle.kusionstack.io/a"), "1".to_owned());
        keys.iter().map(label).chain([("app".to_owned(), "web".to_owned())]).collect()
    }

    #[test]
    fn operations_are_those_whose_labels_change() {
        let (before, after) = (labels(&[]), labels(&["operating"]));
        let pod = |labels, old_labels| TracedPod { uid: "u", labels, old_labels };
        let nothing = AdmissionResponse::allow();
        assert!(pod(Some(&after), Some(&after)).operations(&nothing).is_empty());
        let begins = pod(Some(&after), Some(&before));
        assert_eq!(begins.operations(&nothing).into_iter().collect::<Vec<_>>(), ["a"]);
        assert_eq!(begins.run("a"), Some("1"));
        let ends = pod(Some(&before), Some(&after));
        assert_eq!((ends.operations(&nothing).len(), ends.run("a")), (1, Some("1")));
        let deleted = pod(None, Some(&after));
        assert_eq!((deleted.operations(&nothing).len(), deleted.run("b")), (1, None));
    }

    #[test]
    fn operations_are_those_that_a_patch_changes() {
        let after = labels(&["operating"]);
        let pod = TracedPod { uid: "u", labels: Some(&after), old_labels: Some(&after) };
        for patch in [
            json!([{
                "op": "add", "value": "1",
                "path": "/metadata/labels/pre-check.podopslifecycle.kusionstack.io~1a",
            }]),
            json!([{"op": "remove", "path": "/metadata/labels/operating.podopslifecycle.kusionstack.io~1a"}]),
            json!([{
                "op": "add", "path": "/metadata/labels",
                "value": {"pre-check.podopslifecycle.kusionstack.io/a": "1"},
            }]),
        ] {
            let patch: Patch = serde_json::from_value(patch).unwrap();
            let operations = pod.operations(&AdmissionResponse::allow_with(patch)).len();
            assert_eq!(operations, 1);
        }
        let other = json!([{"op": "add", "path": "/metadata/annotations/x", "value": "1"}]);
        let other: Patch = serde_json::from_value(other).unwrap();
        assert!(pod.operations(&AdmissionResponse::allow_with(other)).is_empty());
    }
}
