//! The requests to webhooks (kube-api, `WebhookRequest`).

use std::collections::BTreeMap;

use serde::Serialize;

/// A batch of pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookRequest<'a> {
    pub(crate) trace_id: &'a str,
    pub(crate) rule_name: &'a str,
    /// The stage as the rule spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<&'a str>,
    pub(crate) resources: Vec<WebhookResource<'a>>,
}

/// A pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookResource<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<&'a str, String>,
}

impl<'a> WebhookResource<'a> {
    /// Returns the pod `name`. The API version is the one that KusionStack sends; Kubernetes has no such version.
    pub(crate) fn pod(name: &'a str, parameters: BTreeMap<&'a str, String>) -> Self {
        Self { api_version: "core/v1", kind: "Pod", name, parameters }
    }
}

/// Returns a random UUID (RFC 9562, version 4).
pub(crate) fn trace_id() -> String {
    let bits = fastrand::u128(..);
    let bits = bits & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
