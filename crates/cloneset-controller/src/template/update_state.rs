//! The annotation with the state of the last in-place update of a pod, in OpenKruise's format.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use podward_api::clone_set::null_as_default;
use podward_core::cloneset::keys::UPDATE_STATE;
use serde::{Deserialize, Serialize};

use super::in_place_change::{EnvMetadata, InPlaceChange};
use super::resources::Resources;
use super::seconds;
use crate::pod::Pod;

/// The state of the last in-place update of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UpdateState {
    /// The name of the revision that the pod gets.
    pub(crate) revision: String,
    /// When the update began.
    #[serde(with = "seconds")]
    pub(crate) update_timestamp: Option<Timestamp>,
    /// What ran before, by the names of containers. OpenKruise writes `null` before it changes an image.
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) last_container_statuses: BTreeMap<String, LastStatus>,
    /// True if images change.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) update_images: bool,
    /// True if labels or annotations in the environment of containers change.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) update_env_from_metadata: bool,
    /// True if resources change.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) update_resources: bool,
    /// The images of the containers that wait for those of higher priority.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) next_container_images: BTreeMap<String, String>,
    /// The labels and annotations in the environment of the containers that wait.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) next_container_ref_metadata: BTreeMap<String, EnvMetadata>,
    /// The resources of the containers that wait.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) next_container_resources: BTreeMap<String, Resources>,
    /// What the containers that wait, wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pre_check_before_next: Option<PreCheck>,
    /// The containers that were changed, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) container_batches_record: Vec<ContainerBatch>,
}

/// What ran in a container before it was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LastStatus {
    /// The id of the image.
    #[serde(rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub(crate) image_id: String,
    /// The id of the container, empty if it had not started. `None` if it may never be replaced: it gets its image back
    /// before the kubelet has replaced it. OpenKruise does not write and not read it.
    #[serde(rename = "containerID", skip_serializing_if = "Option::is_none")]
    pub(crate) container_id: Option<String>,
    /// The image in the spec. OpenKruise does not write and not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
}

/// What containers wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PreCheck {
    /// The containers that have to be Ready first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) containers_required_ready: Vec<String>,
}

/// Containers that were changed together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerBatch {
    /// When they were changed.
    #[serde(with = "seconds")]
    pub(crate) timestamp: Option<Timestamp>,
    /// Their names.
    pub(crate) containers: Vec<String>,
}

impl UpdateState {
    /// Returns the state in the annotation of the pod. `None` if the pod was never updated in place.
    ///
    /// # Errors
    /// Returns a text for people if the annotation cannot be read.
    pub(crate) fn of(pod: &Pod) -> Result<Option<Self>, String> {
        let Some(text) = pod.annotations().get(UPDATE_STATE) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| {
            format!(
                "the annotation {UPDATE_STATE} cannot be read: {error}; the update counts as ended when it is removed"
            )
        })
    }

    /// Returns the changes of the containers that wait.
    pub(super) fn waiting(&self) -> InPlaceChange {
        InPlaceChange {
            images: self.next_container_images.clone(),
            env: self.next_container_ref_metadata.clone(),
            resources: self.next_container_resources.clone(),
            ..InPlaceChange::default()
        }
    }

    /// Stores the changes of the containers that wait until `required` are Ready.
    pub(super) fn wait_with(&mut self, change: InPlaceChange, required: Vec<String>) {
        let waits = !change.is_empty();
        self.next_container_images = change.images;
        self.next_container_ref_metadata = change.env;
        self.next_container_resources = change.resources;
        self.pre_check_before_next = waits.then_some(PreCheck { containers_required_ready: required });
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(annotation: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"annotations": {UPDATE_STATE: annotation}}})).unwrap()
    }

    #[test]
    fn the_format_is_that_of_open_kruise() {
        let text = json!({
            "revision": "web-5d4f", "updateTimestamp": "2026-01-02T03:04:05Z",
            "lastContainerStatuses": {"app": {"imageID": "sha256:1", "resources": {}}},
            "updateImages": true, "updateEnvFromMetadata": true, "updateResources": true, "verticalUpdateOnly": false,
            "nextContainerImages": {"log": "log:2"},
            "nextContainerRefMetadata": {"log": {"creationTimestamp": null, "labels": {"a": "b"}}},
            "nextContainerResources": {"log": {"requests": {"cpu": "1"}}},
            "preCheckBeforeNext": {"containersRequiredReady": ["app"]},
            "containerBatchesRecord": [{"timestamp": "2026-01-02T03:04:05Z", "containers": ["app"]}],
        });
        let state = UpdateState::of(&pod(&text.to_string())).unwrap().unwrap();
        let mut expected = text;
        expected.as_object_mut().unwrap().remove("verticalUpdateOnly");
        expected["lastContainerStatuses"]["app"].as_object_mut().unwrap().remove("resources");
        expected["nextContainerRefMetadata"]["log"].as_object_mut().unwrap().remove("creationTimestamp");
        assert_eq!(serde_json::to_value(&state).unwrap(), expected);
        let unfilled = r#"{"revision": "web-5d4f", "lastContainerStatuses": null}"#;
        let empty = UpdateState::of(&pod(unfilled)).unwrap().unwrap();
        assert!(empty.last_container_statuses.is_empty());
        let mut without = state.clone();
        without.wait_with(state.waiting(), vec!["app".to_owned()]);
        assert_eq!(without, state);
        without.wait_with(InPlaceChange::default(), vec!["app".to_owned()]);
        assert_eq!(without.pre_check_before_next, None);
    }

    #[test]
    fn what_is_not_needed_is_not_written() {
        let written: Value = serde_json::to_value(UpdateState::default()).unwrap();
        assert_eq!(written, json!({"revision": "", "updateTimestamp": null, "lastContainerStatuses": {}}));
        assert_eq!(UpdateState::of(&Pod::default()), Ok(None));
    }

    proptest! {
        #[test]
        fn no_annotation_panics(text in ".*|\\{\"(revision|updateTimestamp|lastContainerStatuses)\":.*\\}") {
            let _ = UpdateState::of(&pod(&text));
        }
    }
}
