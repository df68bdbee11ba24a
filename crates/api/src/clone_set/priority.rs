//! The order in which pods are updated.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::null_as_default;

/// Which pods are updated first. At most one of the fields may be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!has(self.orderPriority) || !has(self.weightPriority) || \
                            self.orderPriority.size() == 0 || self.weightPriority.size() == 0")
        .message("at most one of orderPriority and weightPriority may be set; remove one of them")
)]
#[serde(rename_all = "camelCase")]
pub struct PriorityStrategy {
    /// The keys of labels whose values end with a number. A pod is ordered by the first of these labels that it has:
    /// pods with an earlier key before those with a later one, and among those with the same key the highest number
    /// first. Pods without any of them come before the others.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub order_priority: Vec<OrderPriority>,
    /// The weights of pods. The weight of a pod is the sum of those whose selectors match it, and pods with the largest
    /// one come first.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub weight_priority: Vec<WeightPriority>,
}

/// A label whose value ends with a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderPriority {
    /// The key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub ordered_key: String,
}

/// The weight of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightPriority {
    /// The weight.
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// Selects the pods. It must not be empty.
    #[x_kube(
        validation = Rule::new("has(self.matchLabels) && self.matchLabels.size() > 0 || \
                                has(self.matchExpressions) && self.matchExpressions.size() > 0")
            .message("must not be empty; set matchLabels or matchExpressions")
    )]
    pub match_selector: LabelSelector,
}

/// A label. Its pods are spread over the time of the update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScatterTerm {
    /// The key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// The value of the label.
    #[schemars(length(max = 63))]
    pub value: String,
}
