//! The metadata that pods get from their template.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::cloneset::keys;
use serde_json::Value;

/// What the controller writes on pods itself: it does not come from a template.
const OWN_LABELS: [&str; 5] =
    [keys::STATE_LABEL, keys::REVISION_HASH, keys::TEMPLATE_HASH, keys::INSTANCE_ID, keys::SPECIFIED_DELETE];
const OWN_ANNOTATIONS: [&str; 7] = [
    keys::STATE_TIME,
    keys::UPDATE_STATE,
    keys::UPDATE_GRACE,
    keys::DELETE_HOLD,
    keys::PREVIOUS_STATE,
    keys::UNCONFIRMED,
    keys::REARMED,
];

/// The field of a strategic merge patch with the finalizers that are removed.
pub(super) const REMOVED_FINALIZERS: &str = "$deleteFromPrimitiveList/finalizers";

/// The metadata of a template. Pods get nothing else of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) finalizers: BTreeSet<String>,
}

impl Metadata {
    /// Returns the metadata of the template, without what the controller writes itself.
    ///
    /// # Errors
    /// Fails if a label, an annotation or a finalizer is no text.
    pub(super) fn of(template: &Value) -> Result<Self, String> {
        let metadata = template.get("metadata").unwrap_or(&Value::Null);
        let mut labels = texts(metadata, "labels")?;
        let mut annotations = texts(metadata, "annotations")?;
        labels.retain(|key, _| !OWN_LABELS.contains(&key.as_str()));
        annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
        Ok(Self { labels, annotations, finalizers: finalizers(metadata)? })
    }
}

fn texts(metadata: &Value, field: &str) -> Result<BTreeMap<String, String>, String> {
    let entries = match metadata.get(field) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err(format!("metadata.{field} of the template is no map")),
    };
    let entry = |(key, value): (&String, &Value)| match value.as_str() {
        Some(text) => Ok((key.clone(), text.to_owned())),
        None => Err(format!("metadata.{field}[{key}] of the template is no text")),
    };
    entries.iter().map(entry).collect()
}

fn finalizers(metadata: &Value) -> Result<BTreeSet<String>, String> {
    let items = match metadata.get("finalizers") {
        None | Some(Value::Null) => return Ok(BTreeSet::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("metadata.finalizers of the template is no list".to_owned()),
    };
    let item = |it: &Value| it.as_str().map(str::to_owned);
    let texts: Option<_> = items.iter().map(item).collect();
    texts.ok_or_else(|| "metadata.finalizers of the template contains something else than texts".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_controller_writes_some_keys_itself() {
        let template = json!({"metadata": {
            "labels": {"app": "web", keys::INSTANCE_ID: "xxxxx", keys::SPECIFIED_DELETE: "true"},
            "annotations": {"note": "", keys::UPDATE_STATE: "{}"},
            "finalizers": ["example.com/a"], "ownerReferences": [],
        }});
        let metadata = Metadata::of(&template).unwrap();
        assert_eq!(metadata.labels, [("app".to_owned(), "web".to_owned())].into());
        assert_eq!(metadata.annotations, [("note".to_owned(), String::new())].into());
        assert_eq!(metadata.finalizers, ["example.com/a".to_owned()].into());
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(Metadata::of(&Value::Null), Ok(Metadata::default()));
        for metadata in [
            json!({"labels": {"app": 1}}),
            json!({"labels": []}),
            json!({"annotations": "x"}),
            json!({"finalizers": {}}),
            json!({"finalizers": [null]}),
        ] {
            Metadata::of(&json!({"metadata": metadata})).unwrap_err();
        }
    }
}
