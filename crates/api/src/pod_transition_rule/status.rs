//! The status of a `PodTransitionRule`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use podward_core::rules::{Grant, RuleDetail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::known_format;

/// The observed state of the rules and their pods. The leader of the lifecycle-controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTransitionRuleStatus {
    /// The time of the last update of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Time>,
    /// The `metadata.generation` of the object that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The names of the selected pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The number of selected pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub target_count: Option<u32>,
    /// The number of selected pods that wait for a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub waiting_count: Option<u32>,
    /// The tasks of webhooks, by rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rule_states: Vec<RuleState>,
    /// The results of the rules, by pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<RuleDetail>,
    /// Grants of `availablePolicy`: pods that may become unavailable, but are still available. They count as
    /// unavailable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// The replica of the lifecycle-controller that wrote `grants`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// `Accepted` is True if the rules are valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The state of a rule with a webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleState {
    /// The name of the rule.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The tasks of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_status: Option<WebhookStatus>,
}

/// The tasks of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStatus {
    /// The running tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_states: Vec<TaskInfo>,
    /// The tasks that ended within the last 10 minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<TaskInfo>,
}

/// A task: a check that the webhook continues after it has answered. Podward polls its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskInfo {
    /// The ID of the task. The webhook chooses it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task_id: String,
    /// The pods that the webhook has not approved yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processing: Vec<String>,
    /// The pods that the webhook has approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
    /// The time at which the task began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    /// The time of the last poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
    /// The last message of the webhook.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Identifies the operations that the task is for: one entry for each pod in `processing`, followed by one for
    /// each pod in `approved`. An extension of Podward.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
}
