//! What webhooks are sent (kube-api, `WebhookRequest`).

use std::collections::BTreeMap;

use serde::Serialize;

/// A batch of pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WebhookRequest<'a> {
    pub(super) trace_id: &'a str,
    pub(super) rule_name: &'a str,
    /// As the rule has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<&'a str>,
    pub(super) resources: Vec<Resource<'a>>,
}

/// A pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resource<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<&'a str, String>,
}

impl<'a> Resource<'a> {
    /// The API version is that of the wire, which is no version of Kubernetes.
    pub(super) fn pod(name: &'a str, parameters: BTreeMap<&'a str, String>) -> Self {
        Self { api_version: "core/v1", kind: "Pod", name, parameters }
    }
}

/// A random UUID (RFC 9562, version 4).
pub(super) fn trace_id() -> String {
    let bits = fastrand::u128(..);
    let bits = bits & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
