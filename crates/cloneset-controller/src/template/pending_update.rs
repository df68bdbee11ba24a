//! The annotation with an in-place update that waits for its grace period, in OpenKruise's format.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use podward_core::cloneset::keys::{REVISION_HASH, TEMPLATE_HASH, UPDATE_GRACE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::in_place_change::{EnvMetadata, InPlaceChange};
use super::metadata::REMOVED_FINALIZERS;
use super::resources::Resources;
use super::revision_hash::is_same_revision;
use super::update_state::UpdateState;
use crate::pod::Pod;

/// An update that waits for its grace period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PendingUpdate {
    /// The name of the revision.
    pub(super) revision: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    container_images: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    container_ref_metadata: BTreeMap<String, EnvMetadata>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    container_resources: BTreeMap<String, Resources>,
    /// A strategic merge patch of the pod, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta_data_patch: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    update_env_from_metadata: bool,
    grace_seconds: i64,
}

impl PendingUpdate {
    pub(super) fn new(revision: &str, change: InPlaceChange, seconds: u32) -> Self {
        Self {
            revision: revision.to_owned(),
            meta_data_patch: metadata_patch(&change).map(|patch| BASE64_STANDARD.encode(patch.to_string())),
            update_env_from_metadata: !change.env.is_empty(),
            container_images: change.images,
            container_ref_metadata: change.env,
            container_resources: change.resources,
            grace_seconds: seconds.into(),
        }
    }

    /// Returns the update in the annotation of the pod.
    ///
    /// # Errors
    /// Returns a text for people if the annotation cannot be read.
    pub(super) fn of(pod: &Pod) -> Result<Option<Self>, String> {
        let Some(text) = pod.annotations().get(UPDATE_GRACE) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| unreadable(&error.to_string()))
    }

    /// Returns what changes after the grace period.
    ///
    /// # Errors
    /// Returns a text for people if the patch of the metadata cannot be read.
    pub(super) fn change(self) -> Result<InPlaceChange, String> {
        let patch = match self.meta_data_patch {
            None => Value::Null,
            Some(text) => {
                let bytes = BASE64_STANDARD.decode(text).map_err(|error| unreadable(&error.to_string()))?;
                serde_json::from_slice(&bytes).map_err(|error| unreadable(&error.to_string()))?
            }
        };
        let metadata = patch.get("metadata").unwrap_or(&Value::Null);
        let names = |field: &str, is_added: bool| {
            let items = metadata.get(field).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(move |name| (name.to_owned(), is_added)).collect::<Vec<_>>()
        };
        Ok(InPlaceChange {
            images: self.container_images,
            env: self.container_ref_metadata,
            resources: self.container_resources,
            labels: texts(metadata.get("labels")),
            annotations: texts(metadata.get("annotations")),
            finalizers: [names(REMOVED_FINALIZERS, false), names("finalizers", true)]
                .concat()
                .into_iter()
                .collect(),
        })
    }

    /// Returns when the grace period ends. The time at which the update began is stored in whole seconds: a second is
    /// added, so that the period is not too short. `None` if that time is missing.
    pub(super) fn end(&self, state: &UpdateState) -> Option<Timestamp> {
        let seconds = self.grace_seconds.max(0).saturating_add(1);
        let end = state.update_timestamp?.saturating_add(SignedDuration::from_secs(seconds));
        Some(end.unwrap_or(Timestamp::MAX))
    }

    /// Returns true if somebody has given the pod another revision: the update must not end.
    pub(super) fn is_void(&self, pod: &Pod) -> bool {
        let label = pod.labels().get(REVISION_HASH).or_else(|| pod.labels().get(TEMPLATE_HASH));
        !label.is_some_and(|it| is_same_revision(it, &self.revision))
    }
}

fn unreadable(error: &str) -> String {
    format!(
        "the annotation {UPDATE_GRACE} cannot be read: {error}; the containers stay as they are when it is removed"
    )
}

/// Returns the labels, annotations and finalizers as a patch. `None` if none changes.
fn metadata_patch(change: &InPlaceChange) -> Option<Value> {
    let names = |is_added: bool| {
        change.finalizers.iter().filter(move |(_, it)| **it == is_added).map(|(name, _)| name)
    };
    let (added, removed): (Vec<_>, Vec<_>) = (names(true).collect(), names(false).collect());
    let fields = [
        ("labels", (!change.labels.is_empty()).then(|| json!(change.labels))),
        ("annotations", (!change.annotations.is_empty()).then(|| json!(change.annotations))),
        ("finalizers", (!added.is_empty()).then(|| json!(added))),
        (REMOVED_FINALIZERS, (!removed.is_empty()).then(|| json!(removed))),
    ];
    let fields: BTreeMap<_, _> = fields.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    (!fields.is_empty()).then(|| json!({"metadata": fields}))
}

fn texts(map: Option<&Value>) -> BTreeMap<String, Option<String>> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    let entry = |(key, value): (&String, &Value)| match value {
        Value::Null => Some((key.clone(), None)),
        other => other.as_str().map(|text| (key.clone(), Some(text.to_owned()))),
    };
    entries.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(annotation: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"annotations": {UPDATE_GRACE: annotation}}})).unwrap()
    }

    fn begun(time: Timestamp) -> UpdateState {
        UpdateState { update_timestamp: Some(time), ..UpdateState::default() }
    }

    #[test]
    fn a_change_is_stored() {
        let change = InPlaceChange {
            images: [("app".to_owned(), "app:2".to_owned())].into(),
            labels: [("old".to_owned(), None), ("new".to_owned(), Some("x".to_owned()))].into(),
            finalizers: [("example.com/a".to_owned(), true), ("example.com/b".to_owned(), false)].into(),
            ..InPlaceChange::default()
        };
        let pending = PendingUpdate::new("web-5d4f", change.clone(), 5);
        let text = serde_json::to_string(&pending).unwrap();
        let read = PendingUpdate::of(&pod(&text)).unwrap().unwrap();
        assert_eq!(read, pending);
        assert_eq!(read.end(&begun(Timestamp::UNIX_EPOCH)).map(Timestamp::as_second), Some(6));
        assert_eq!(read.change().unwrap(), change);
        let written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&written["graceSeconds"], &written["containerImages"]),
            (&json!(5), &json!({"app": "app:2"}))
        );
        let nothing = PendingUpdate::new("web-5d4f", InPlaceChange::default(), 5);
        assert_eq!(
            serde_json::to_value(nothing).unwrap(),
            json!({"revision": "web-5d4f", "graceSeconds": 5})
        );
    }

    #[test]
    fn any_period_has_an_end() {
        for (seconds, end) in [(i64::MAX, Timestamp::MAX.as_second()), (i64::MIN, 1)] {
            let pending = PendingUpdate { grace_seconds: seconds, ..PendingUpdate::default() };
            assert_eq!(pending.end(&begun(Timestamp::UNIX_EPOCH)).map(Timestamp::as_second), Some(end));
        }
        assert_eq!(PendingUpdate::default().end(&begun(Timestamp::MAX)), Some(Timestamp::MAX));
        assert_eq!(PendingUpdate::default().end(&UpdateState::default()), None);
    }

    #[test]
    fn another_revision_makes_the_update_void() {
        let with =
            |labels: Value| serde_json::from_value::<Pod>(json!({"metadata": {"labels": labels}})).unwrap();
        let pending = PendingUpdate::new("web-5d4f", InPlaceChange::default(), 5);
        assert!(!pending.is_void(&with(json!({REVISION_HASH: "web-5d4f", TEMPLATE_HASH: "5d4f"}))));
        assert!(!pending.is_void(&with(json!({REVISION_HASH: "5d4f"}))));
        assert!(pending.is_void(&with(json!({REVISION_HASH: "web-7777", TEMPLATE_HASH: "5d4f"}))));
        assert!(pending.is_void(&Pod::default()));
    }

    proptest! {
        #[test]
        fn no_annotation_panics(text in ".*|\\{\"(revision|metaDataPatch|graceSeconds)\":\"?[a-zA-Z0-9+/=]*\"?\\}") {
            if let Ok(Some(pending)) = PendingUpdate::of(&pod(&text)) {
                let _ = pending.change();
            }
        }
    }
}
