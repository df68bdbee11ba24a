//! The webhook of a rule.

use k8s_openapi::api::core::v1::ObjectFieldSelector;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Asks a system over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransitionRuleWebhook {
    /// The URL and the certificate authorities of the webhook.
    pub client_config: ClientConfig,
    /// The effect of a failed call or an invalid answer. Fail: the pod waits. Ignore: the pod passes the rule.
    #[serde(default)]
    pub failure_policy: WebhookFailurePolicy,
    /// The values that the webhook receives for each pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub parameters: Vec<Parameter>,
}

/// The URL and the certificate authorities of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// The URL that Podward sends the pods to by POST. Begins with `http://` or `https://`.
    #[schemars(length(max = 2048), regex(pattern = r"^[hH][tT][tT][pP][sS]?://[^/?#]"))]
    pub url: String,
    /// The authorities that may issue the server's certificate: base64 of PEM certificates. When not set, or `Cg==`,
    /// the authorities of the system.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 262_144))]
    pub ca_bundle: String,
    /// Enables polling: the webhook can answer later, and Podward polls its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Poll>,
}

/// The URL and the intervals to poll the result of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Poll {
    /// The URL that Podward polls by GET. The query contains the ID of the task.
    #[schemars(length(max = 2048), regex(pattern = r"^[hH][tT][tT][pP][sS]?://[^/?#]"))]
    pub url: String,
    /// The name of the query parameter that contains the ID of the task. `task-id` when not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub raw_query_key: String,
    /// The authorities that may issue the server's certificate: base64 of PEM certificates. When not set, or `Cg==`,
    /// the authorities of the system.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 262_144))]
    pub ca_bundle: String,
    /// The delay before the first poll and between polls, in seconds.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: i64,
    /// The timeout of a task, in seconds. After it, Podward sends the pods to the webhook again.
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

/// The effect of a failed call to a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[allow(missing_docs)]
pub enum WebhookFailurePolicy {
    #[default]
    Ignore,
    Fail,
}

/// Any value other than `Ignore` means `Fail`, as in KusionStack. KusionStack's resource definition allows any value.
impl<'de> Deserialize<'de> for WebhookFailurePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(if word == "Ignore" { Self::Ignore } else { Self::Fail })
    }
}

/// A value that the webhook receives for each pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parameter {
    /// The key of the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// A fixed value. When set, `valueFrom` is ignored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The source of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ParameterSource>,
}

/// The source of a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParameterSource {
    /// Accepted and ignored, as by KusionStack.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// The field of the pod that contains the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
}
