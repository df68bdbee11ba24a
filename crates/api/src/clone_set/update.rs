//! How pods get a new revision of the template.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::json::{amount, amount_or_zero, is_default, null_as_default};
use super::priority::{PriorityStrategy, ScatterTerm};
use super::schema::number_or_percentage;

/// How pods get a new revision of the template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("self.type != 'InPlaceOnly' || !has(self.maxSurge) || \
                            self.maxSurge == 0 || self.maxSurge == '0%'")
        .message("must be 0 with the type InPlaceOnly, because no other pods are created for an update")
        .field_path(".maxSurge")
)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// ReCreate: pods are deleted, and others are created. InPlaceIfPossible: containers are replaced in the pods if
    /// the change allows it, and otherwise as with ReCreate. InPlaceOnly: containers are replaced, or the pod stays as
    /// it is. OnDelete: only pods that somebody else has deleted are replaced.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub type_: UpdateType,
    /// The number of pods that keep an old revision: a number, or a percentage of `replicas`, rounded up. Below 100%,
    /// at least one pod is updated.
    #[serde(default, deserialize_with = "amount_or_zero")]
    #[schemars(transform = number_or_percentage)]
    #[x_kube(
        validation = Rule::new("type(self) != string || self.matches('^(100|[0-9]{1,2})%$')")
            .message("must be a number of at least 0, or a percentage from 0% to 100%")
    )]
    pub partition: IntOrString,
    /// The largest number of pods that are not available during an update or a deletion: a number, or a percentage of
    /// `replicas`, rounded up, but down with a `maxSurge`.
    #[serde(default = "max_unavailable", deserialize_with = "null_as_max_unavailable")]
    #[schemars(transform = number_or_percentage)]
    #[x_kube(
        validation = Rule::new("type(self) != string || self.matches('^[0-9]{1,9}%$')")
            .message("must be a number of at least 0, or a percentage such as 20%")
    )]
    pub max_unavailable: IntOrString,
    /// The largest number of pods above `replicas` during an update or a deletion: a number, or a percentage of
    /// `replicas`, rounded up.
    #[serde(default, deserialize_with = "amount_or_zero")]
    #[schemars(transform = number_or_percentage)]
    #[x_kube(
        validation = Rule::new("type(self) != string || self.matches('^[0-9]{1,9}%$')")
            .message("must be a number of at least 0, or a percentage such as 20%")
    )]
    pub max_surge: IntOrString,
    /// True if no further pod is updated.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub paused: bool,
    /// Which pods are updated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_strategy: Option<PriorityStrategy>,
    /// The labels whose pods are spread over the time of the update.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".to_owned(), "value".to_owned()]))]
    pub scatter_strategy: Vec<ScatterTerm>,
    /// How containers are replaced in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_strategy: Option<InPlaceUpdateStrategy>,
}

impl Default for UpdateStrategy {
    fn default() -> Self {
        Self {
            type_: UpdateType::default(),
            partition: IntOrString::Int(0),
            max_unavailable: max_unavailable(),
            max_surge: IntOrString::Int(0),
            paused: false,
            priority_strategy: None,
            scatter_strategy: Vec::new(),
            in_place_update_strategy: None,
        }
    }
}

/// How a pod gets a new revision of the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum UpdateType {
    #[default]
    ReCreate,
    InPlaceIfPossible,
    InPlaceOnly,
    OnDelete,
    /// Another text, which the definition of OpenKruise accepts. `CloneSet::check` reports it.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How containers are replaced in a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// How long a pod is not ready before its containers are replaced, in seconds. When not set, 0.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: i32,
}

fn max_unavailable() -> IntOrString {
    IntOrString::String("20%".to_owned())
}

fn null_as_max_unavailable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IntOrString, D::Error> {
    Ok(amount(deserializer)?.unwrap_or_else(max_unavailable))
}
