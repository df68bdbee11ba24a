//! The observed state of a binding.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::known_format;

/// The observed state of a binding. The replica of the service-discovery-bridge that is responsible for it writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
    /// The `metadata.generation` of the binding that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted` is True if the binding is valid and may use its registry. `Reachable` is True if every address of the
    /// registry answers. `Attached` is True if the lifecycle-controller asks the hook of the binding. `Synchronized` is True
    /// if the registry shows what it should.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The number of instances that should exist.
    #[serde(default)]
    #[schemars(transform = known_format)]
    pub wanted: u32,
    /// The number of instances that exist as they should.
    #[serde(default)]
    #[schemars(transform = known_format)]
    pub present: u32,
    /// The number of differences that the last comparison found and did not repair.
    #[serde(default)]
    #[schemars(transform = known_format)]
    pub drifted: u32,
    /// The removals that the removal limit holds. Not set when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_removals: Option<HeldRemovals>,
    /// The last error. Not set when the last comparison had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The name of the replica that is responsible for the binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

/// Removals that the removal limit holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldRemovals {
    /// Identifies these removals. `kubectl podward release discoverybinding/<name>` or the annotation
    /// `podward.io/release-removals` with this value releases them.
    pub id: String,
    /// The number of instances.
    #[schemars(transform = known_format)]
    pub count: u32,
    /// The service, and the reason why the removals are not on record.
    pub reason: String,
    /// Since when they are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
