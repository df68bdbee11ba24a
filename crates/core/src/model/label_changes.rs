//! Label changes, and the patches that carry them.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Map, Value};

/// Labels to set and labels to remove. The two never share a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelChanges {
    /// The new values by key.
    pub set: BTreeMap<String, String>,
    /// The keys to remove.
    pub remove: BTreeSet<String>,
}

impl LabelChanges {
    /// Returns true if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    /// Returns the changes that turn `from` into `to`.
    #[must_use]
    pub fn between(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Self {
        let set = to.iter().filter(|(key, value)| from.get(*key) != Some(value));
        let remove = from.keys().filter(|key| !to.contains_key(*key));
        LabelChanges {
            set: set.map(|(key, value)| (key.clone(), value.clone())).collect(),
            remove: remove.cloned().collect(),
        }
    }

    /// Applies the changes to `labels`.
    pub fn apply(&self, labels: &mut BTreeMap<String, String>) {
        labels.retain(|key, _| !self.remove.contains(key));
        labels.extend(self.set.iter().map(|(key, value)| (key.clone(), value.clone())));
    }

    /// Returns the JSON patch operations (RFC 6902). `has_labels` says whether `metadata.labels` exists in the object.
    #[must_use]
    pub fn to_json_patch(&self, has_labels: bool) -> Vec<PatchOperation> {
        let mut operations = Vec::with_capacity(self.set.len() + self.remove.len() + 1);
        if !has_labels && !self.set.is_empty() {
            operations.push(add(&["metadata", "labels"], Value::Object(Map::new())));
        }
        operations.extend(self.remove.iter().map(|key| remove(&["metadata", "labels", key])));
        operations.extend(
            self.set
                .iter()
                .map(|(key, value)| add(&["metadata", "labels", key], Value::from(value.as_str()))),
        );
        operations
    }

    /// Returns the value of `metadata.labels` for a JSON merge patch (RFC 7386).
    #[must_use]
    pub fn to_merge_patch(&self) -> Map<String, Value> {
        let gone = self.remove.iter().map(|key| (key.clone(), Value::Null));
        gone.chain(self.set.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())))).collect()
    }
}

pub(crate) fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
}

pub(crate) fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path.iter().copied()) })
}

/// Sets an annotation. `has_annotations` says whether `metadata.annotations` exists in the object.
pub(crate) fn set_annotation(
    operations: &mut Vec<PatchOperation>,
    has_annotations: bool,
    key: &str,
    text: String,
) {
    // To add the map again would remove what is in it.
    let map = add(&["metadata", "annotations"], Value::Object(Map::new()));
    if !has_annotations && !operations.contains(&map) {
        operations.push(map);
    }
    operations.push(add(&["metadata", "annotations", key], text.into()));
}

/// Applies the operations that concern single labels to `labels`.
pub(crate) fn apply_to_labels(operations: &[PatchOperation], labels: &mut BTreeMap<String, String>) {
    let label = |path: &PointerBuf| {
        let mut tokens = path.tokens().map(|token| token.decoded().into_owned());
        let is_label =
            tokens.next().as_deref() == Some("metadata") && tokens.next().as_deref() == Some("labels");
        is_label.then(|| tokens.next()).flatten()
    };
    for operation in operations {
        match operation {
            PatchOperation::Add(AddOperation { path, value: Value::String(text) }) => {
                labels.extend(label(path).map(|key| (key, text.clone())));
            }
            PatchOperation::Remove(RemoveOperation { path }) => {
                if let Some(key) = label(path) {
                    labels.remove(&key);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changes() -> LabelChanges {
        LabelChanges {
            set: BTreeMap::from([("a.io/x".to_owned(), "1".to_owned())]),
            remove: BTreeSet::from(["b.io/y".to_owned()]),
        }
    }

    #[test]
    fn json_patch_escapes_keys_and_makes_the_map() {
        let mut pod = json!({"metadata": {"labels": {"b.io/y": "0", "keep": "me"}}});
        json_patch::patch(&mut pod, &changes().to_json_patch(true)).unwrap();
        assert_eq!(pod, json!({"metadata": {"labels": {"a.io/x": "1", "keep": "me"}}}));

        let only_set = LabelChanges { remove: BTreeSet::new(), ..changes() };
        let mut bare = json!({"metadata": {}});
        json_patch::patch(&mut bare, &only_set.to_json_patch(false)).unwrap();
        assert_eq!(bare, json!({"metadata": {"labels": {"a.io/x": "1"}}}));
    }

    #[test]
    fn json_patch_can_be_read_back() {
        let before =
            BTreeMap::from([("b.io/y".to_owned(), "0".to_owned()), ("keep".to_owned(), "me".to_owned())]);
        let (mut patched, mut changed) = (before.clone(), before);
        let mut operations = changes().to_json_patch(false);
        set_annotation(&mut operations, false, "a.io/x", "other".to_owned());
        apply_to_labels(&operations, &mut patched);
        changes().apply(&mut changed);
        assert_eq!(patched, changed);
    }

    #[test]
    fn merge_patch_says_the_same() {
        let mut labels =
            BTreeMap::from([("b.io/y".to_owned(), "0".to_owned()), ("keep".to_owned(), "me".to_owned())]);
        let mut document = json!({"labels": labels});
        json_patch::merge(&mut document, &json!({"labels": changes().to_merge_patch()}));
        changes().apply(&mut labels);
        assert_eq!(document, json!({"labels": labels}));
    }
}
