//! The user who set the label [`TO_DELETE`], in the annotation [`TO_DELETE_BY`].
//!
//! The label requests a deletion, but a label does not name its writer. The mutating-webhook adds the writer to the
//! write that sets the label. The leader executes the request only if that user may delete the pod.

use json_patch::Patch;
use serde::{Deserialize, Serialize};

use crate::model::keys::{TO_DELETE, TO_DELETE_BY};
use crate::model::label_changes::{remove, set_annotation};
use crate::model::pod::Pod;
use crate::review::Writer;

/// The user who set the label [`TO_DELETE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelAuthor {
    /// The name of the user.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
}

impl LabelAuthor {
    /// Reads the text of the annotation. Returns `None` if it is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the annotation. The admission policy of the chart composes the same text, so the order of the
    /// fields matters.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Extends `patch`, the changes of the webhook for a write that leads from `old` to `new`: the annotation names `writer`
/// if this write sets the label, and otherwise stays as it is in `old`. A write that withdraws the deletion request and
/// leaves the label removes the annotation, because a label without an author deletes nothing. `old` is `None` if the pod
/// is created. With `opts_in`, `patch` opts the pod in.
#[must_use]
pub fn with_label_author(
    patch: Patch,
    old: Option<&Pod>,
    new: &Pod,
    opts_in: bool,
    writer: &Writer<'_>,
) -> Patch {
    let Patch(mut operations) = patch;
    let old = old.filter(|pod| pod.view().is_controlled());
    let has_label = |pod: &Pod| pod.view().labels.contains_key(TO_DELETE);
    let has_request = |pod: &Pod| pod.metadata.annotations.deletion_request.is_some();
    // For a pod that opts in, `patch` removes the marks that it had before.
    let stays = |map, key| !operations.contains(&remove(&["metadata", map, key]));
    let present =
        new.metadata.annotations.to_delete_by.as_deref().filter(|_| stays("annotations", TO_DELETE_BY));
    let wanted = match old {
        _ if !(opts_in || new.view().is_controlled()) => None,
        _ if !has_label(new) || !stays("labels", TO_DELETE) => None,
        Some(old) if has_label(old) && has_request(old) && !has_request(new) => None,
        Some(old) if has_label(old) => old.metadata.annotations.to_delete_by.clone(),
        _ => {
            let author = LabelAuthor { user: writer.username.to_owned(), groups: writer.groups.to_vec() };
            Some(author.to_text())
        }
    };
    match wanted {
        wanted if wanted.as_deref() == present => {}
        None => operations.push(remove(&["metadata", "annotations", TO_DELETE_BY])),
        Some(text) => set_annotation(&mut operations, new.metadata.annotations.present, TO_DELETE_BY, text),
    }
    Patch(operations)
}

/// Returns whether the write that leads from `old` to `new` names the user of a deletion request itself, as Podward does
/// when it records one.
#[must_use]
pub fn names_requester(old: Option<&Pod>, new: &Pod) -> bool {
    let (before, after) = (old.map(|pod| &pod.metadata.annotations), &new.metadata.annotations);
    let sets =
        |after: &Option<String>, before: Option<&Option<String>>| after.is_some() && before != Some(after);
    sets(&after.deletion_request, before.map(|before| &before.deletion_request))
        || sets(&after.to_delete_by, before.map(|before| &before.to_delete_by))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::UnixNanos;
    use crate::model::label_changes::add;

    use super::*;

    fn pod(label: bool, author: Option<&str>) -> Pod {
        let mut labels = json!({"kusionstack.io/control": "true"});
        if label {
            labels[TO_DELETE] = json!("1");
        }
        let mut metadata = json!({"name": "web-0", "namespace": "shop", "labels": labels});
        if let Some(author) = author {
            metadata["annotations"] = json!({TO_DELETE_BY: author});
        }
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn patched(old: Option<&Pod>, new: &Pod) -> Value {
        let groups = ["devs".to_owned()];
        let writer = Writer { username: "mallory", groups: &groups };
        serde_json::to_value(with_label_author(Patch::default(), old, new, false, &writer)).unwrap()
    }

    const PATH: &str = "/metadata/annotations/podward.io~1to-delete-by";
    const MALLORY: &str = r#"{"user":"mallory","groups":["devs"]}"#;
    const ADMIN: &str = r#"{"user":"admin","groups":["system:masters"]}"#;

    #[test]
    fn the_writer_of_the_label_is_recorded() {
        let added = json!([
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": PATH, "value": MALLORY},
        ]);
        assert_eq!(patched(Some(&pod(false, None)), &pod(true, None)), added);
        assert_eq!(patched(None, &pod(true, None)), added, "on create");
        // The patch of a new pod adds the map of annotations too.
        let writer = Writer { username: "mallory", groups: &[] };
        let patch = Patch(vec![add(&["metadata", "annotations"], json!({}))]);
        assert_eq!(with_label_author(patch, None, &pod(true, None), false, &writer).0.len(), 2);
        let parsed = LabelAuthor::parse(MALLORY).unwrap();
        assert_eq!((parsed.user.as_str(), parsed.to_text().as_str()), ("mallory", MALLORY));
    }

    #[test]
    fn a_writer_cannot_name_another_author() {
        let replaced = json!([{"op": "add", "path": PATH, "value": MALLORY}]);
        assert_eq!(patched(Some(&pod(false, None)), &pod(true, Some(ADMIN))), replaced);
        assert_eq!(patched(None, &pod(true, Some(ADMIN))), replaced);
        let restored = json!([{"op": "add", "path": PATH, "value": MALLORY}]);
        assert_eq!(patched(Some(&pod(true, Some(MALLORY))), &pod(true, Some(ADMIN))), restored);
        // Nothing was recorded, for example because Podward set the label.
        let removed = json!([{"op": "remove", "path": PATH}]);
        assert_eq!(patched(Some(&pod(true, None)), &pod(true, Some(ADMIN))), removed);
        // A pod that opts in with a prepared label and annotation.
        for prepared in [ADMIN, MALLORY] {
            let (mut outside, new) = (pod(true, Some(prepared)), pod(true, Some(prepared)));
            outside.metadata.labels.as_mut().unwrap().remove("kusionstack.io/control");
            let writer = Writer { username: "mallory", groups: &["devs".to_owned()] };
            let patch = crate::on_update(Some(&outside), &new, UnixNanos(1));
            let found = with_label_author(patch.clone(), Some(&outside), &new, false, &writer);
            assert_eq!(found, patch, "nobody is the author of a label that is removed");
            let removed = remove(&["metadata", "labels", TO_DELETE]);
            assert_eq!(found.0, [removed, remove(&["metadata", "annotations", TO_DELETE_BY])]);
        }
    }

    #[test]
    fn the_label_that_is_left_of_a_withdrawn_request_has_no_author() {
        for author in [None, Some(ADMIN)] {
            let mut recorded = pod(true, author);
            recorded.metadata.annotations.deletion_request = Some("{}".to_owned());
            assert_eq!(patched(Some(&recorded), &recorded), json!([]));
            let removed = author.map(|_| json!({"op": "remove", "path": PATH}));
            assert_eq!(patched(Some(&recorded), &pod(true, author)), Value::from_iter(removed));
            assert_eq!(patched(Some(&recorded), &pod(true, None)), json!([]));
        }
    }

    #[test]
    fn the_author_goes_with_the_label_and_stays_otherwise() {
        assert_eq!(
            patched(Some(&pod(true, Some(MALLORY))), &pod(false, Some(MALLORY))),
            json!([{"op": "remove", "path": PATH}])
        );
        assert_eq!(patched(Some(&pod(true, Some(ADMIN))), &pod(true, Some(ADMIN))), json!([]));
        assert_eq!(patched(Some(&pod(false, None)), &pod(false, None)), json!([]));
    }
}
