//! The part of a rule that says which system is asked over HTTP.

use k8s_openapi::api::core::v1::ObjectFieldSelector;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A system that is asked over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransitionRuleWebhook {
    /// Where it is.
    pub client_config: ClientConfig,
    /// What happens to pods when it can't be asked, or gives no answer that can be read.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// What it is told of each pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub parameters: Vec<Parameter>,
}

/// Where a webhook is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// What pods are sent to, by POST: `http://` or `https://`.
    #[schemars(length(max = 2048), regex(pattern = r"^[hH][tT][tT][pP][sS]?://[^/?#]"))]
    pub url: String,
    /// The authorities that its certificate is checked against: PEM certificates, as base64. The system's when not set, or `Cg==`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 262_144))]
    pub ca_bundle: String,
    /// Where it is asked again when it has said that the answer will take a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Poll>,
}

/// Where a webhook is asked for the state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Poll {
    /// What is asked, by GET, with the task's id in the query.
    #[schemars(length(max = 2048), regex(pattern = r"^[hH][tT][tT][pP][sS]?://[^/?#]"))]
    pub url: String,
    /// The name of the task's id in the query; `task-id` when not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub raw_query_key: String,
    /// The authorities that its certificate is checked against: PEM certificates, as base64. The system's when not set, or `Cg==`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 262_144))]
    pub ca_bundle: String,
    /// Time between two questions, in seconds; also before the first.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: i64,
    /// How long a task may take, in seconds. Then its pods are sent anew.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 604_800))]
    pub timeout_seconds: i64,
}

impl Default for Poll {
    fn default() -> Self {
        Self {
            url: String::new(),
            raw_query_key: String::new(),
            ca_bundle: String::new(),
            interval_seconds: default_interval(),
            timeout_seconds: default_timeout(),
        }
    }
}

fn default_interval() -> i64 {
    5
}

fn default_timeout() -> i64 {
    60
}

/// What an unreachable webhook means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[allow(missing_docs)]
pub enum FailurePolicy {
    #[default]
    Ignore,
    Fail,
}

/// A word that KusionStack's definition let in while it was in force means Fail: that is how every word works there.
impl<'de> Deserialize<'de> for FailurePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(if word == "Ignore" { Self::Ignore } else { Self::Fail })
    }
}

/// Something that a webhook is told of each pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parameter {
    /// Its key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Its value, which comes before `valueFrom`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Where its value is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ParameterSource>,
}

/// Where a value is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParameterSource {
    /// Taken and not used, as by KusionStack.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// A field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
}
