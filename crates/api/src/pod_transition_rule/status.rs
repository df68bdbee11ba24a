//! What is known of a rule object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use podward_core::rules::{Detail, Grant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::known_format;

/// What is known of the rules and their pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTransitionRuleStatus {
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Time>,
    /// The generation that this status is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Names of the selected pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// How many pods are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub target_count: Option<u32>,
    /// How many of them wait for a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub waiting_count: Option<u32>,
    /// What webhooks are doing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rule_states: Vec<RuleState>,
    /// What the rules say to single pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// Room that was given to pods which may not show it yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Who wrote `grants`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// `Accepted`: whether the rules can be followed at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What a webhook is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleState {
    /// The rule.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_status: Option<WebhookStatus>,
}

/// Tasks of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStatus {
    /// Those that go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_states: Vec<TaskInfo>,
    /// Those that ended within the last 10 minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<TaskInfo>,
}

/// Something that a webhook takes its time for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskInfo {
    /// The webhook's name for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task_id: String,
    /// Pods that it has not approved yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processing: Vec<String>,
    /// Pods that it has approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    /// When it was last asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
    /// What the webhook said last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Podward's: for each pod in `processing`, then for each in `approved`, what tells the operation that it was asked for from
    /// earlier and later ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub askings: Vec<String>,
}
