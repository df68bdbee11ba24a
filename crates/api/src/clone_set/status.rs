//! The observed state of a set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::null_as_default;

/// The observed state of a set. Numbers of pods do not include those that have ended or are being deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetStatus {
    /// The `metadata.generation` of the set that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of pods.
    #[serde(default, deserialize_with = "null_as_default")]
    pub replicas: i32,
    /// The number of pods that are Ready.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ready_replicas: i32,
    /// The number of pods that have been Ready for `minReadySeconds`, and that no hook holds.
    #[serde(default, deserialize_with = "null_as_default")]
    pub available_replicas: i32,
    /// The number of pods of the revision `updateRevision`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub updated_replicas: i32,
    /// The number of these pods that are Ready.
    #[serde(default, deserialize_with = "null_as_default")]
    pub updated_ready_replicas: i32,
    /// The number of these pods that are available.
    #[serde(default, deserialize_with = "null_as_default")]
    pub updated_available_replicas: i32,
    /// The number of pods that should have the revision `updateRevision`: `replicas` without `partition`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub expected_updated_replicas: i32,
    /// The name of the latest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The name of the revision that all pods had last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// How often the name of a new revision was already that of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// `FailedScale` is True if pods or claims could not be created or deleted. `FailedUpdate` is True if pods could
    /// not be updated. `Progressing` is there if `progressDeadlineSeconds` is set, and False after the deadline.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<CloneSetCondition>,
    /// The selector of the pods as text, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}

/// A condition of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetCondition {
    /// The type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// The reason of the last change, for programs.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason of the last change, for people.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When `status` changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// When the condition was written last. It is the start of the progress deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

impl CloneSetCondition {
    /// Pods or claims could not be created or deleted.
    pub const FAILED_SCALE: &str = "FailedScale";
    /// Pods could not be updated.
    pub const FAILED_UPDATE: &str = "FailedUpdate";
    /// The reason of `FailedUpdate`: the set is invalid, and nothing is done for it.
    pub const INVALID: &str = "Invalid";
    /// The reason of `FailedUpdate`: a request failed that is needed before anything can be done for the set.
    pub const NOT_RECONCILED: &str = "NotReconciled";
    /// The reason of `FailedScale` and `HookPastDeadline`: pods wait, and nothing has failed.
    pub const WAITS: &str = "Waits";
    /// The update makes progress.
    pub const PROGRESSING: &str = "Progressing";

    /// Pods wait for a hook whose deadline has passed.
    pub const HOOK_PAST_DEADLINE: &str = "HookPastDeadline";

    /// The reason of `Progressing`: all pods are updated and available.
    pub const AVAILABLE: &str = "CloneSetAvailable";
    /// The reason of `Progressing`: pods are updated.
    pub const UPDATED: &str = "CloneSetUpdated";
    /// The reason of `Progressing`: `paused` is set.
    pub const PAUSED: &str = "CloneSetPaused";
    /// The reason of `Progressing`: all pods but those of `partition` are updated and available.
    pub const PARTITION_AVAILABLE: &str = "ProgressPartitionAvailable";
    /// The reason of `Progressing`: the deadline has passed.
    pub const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
}
