//! The requests to webhooks (kube-api, `WebhookRequest`).

use std::collections::BTreeMap;

use podward_api::pod_transition_rule::Parameter;
use serde::Serialize;
use serde_json::Value;

/// The largest request, in bytes. It is no larger because each call in flight has a request and an answer in memory.
pub(crate) const MAX_REQUEST: usize = 1 << 20;
/// The end of every request: of the list of pods, and of the object.
const END: &[u8] = b"]}";

/// A request without pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EmptyRequest<'a> {
    trace_id: &'a str,
    rule_name: &'a str,
    /// The stage as the rule spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    /// The last field, so that pods can be added to the text.
    resources: [(); 0],
}

/// A request that is put together pod by pod, of at most [`MAX_REQUEST`] bytes.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// The JSON without its end.
    json: Vec<u8>,
    /// The length of the request without pods.
    empty: usize,
}

/// What became of a pod that was to be added to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddedPod {
    Added,
    /// It is in the next request.
    NoRoom,
    /// It fits into no request.
    TooLarge,
}

impl RequestBody {
    /// Returns a request without pods. `stage` is the stage as the rule spells it.
    ///
    /// # Errors
    /// When it can't be serialized.
    pub(crate) fn new(
        trace_id: &str,
        rule_name: &str,
        stage: Option<&str>,
    ) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::to_vec(&EmptyRequest { trace_id, rule_name, stage, resources: [] })?;
        json.truncate(json.len() - END.len());
        let empty = json.len();
        Ok(Self { json, empty })
    }

    /// Adds a pod, the result of [`resource_json`].
    pub(crate) fn add(&mut self, pod: &[u8]) -> AddedPod {
        if self.empty + pod.len() + END.len() > MAX_REQUEST {
            return AddedPod::TooLarge;
        }
        let comma: &[u8] = if self.is_empty() { b"" } else { b"," };
        if self.json.len() + comma.len() + pod.len() + END.len() > MAX_REQUEST {
            return AddedPod::NoRoom;
        }
        self.json.extend_from_slice(comma);
        self.json.extend_from_slice(pod);
        AddedPod::Added
    }

    /// True if the request has no pods.
    pub(crate) fn is_empty(&self) -> bool {
        self.json.len() == self.empty
    }

    /// Returns the JSON.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.json.extend_from_slice(END);
        self.json
    }
}

/// A pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WebhookResource<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<&'a str, String>,
}

/// Returns the JSON of the pod `name` with its parameters, which are evaluated one by one. `pod` is the pod itself.
/// Returns `None` if they have more than [`MAX_REQUEST`] bytes.
///
/// # Errors
/// When it can't be serialized.
pub(crate) fn resource_json(
    name: &str,
    parameters: &[Parameter],
    pod: &Value,
) -> Result<Option<Vec<u8>>, serde_json::Error> {
    let (mut values, mut bytes) = (BTreeMap::new(), 0);
    for parameter in parameters {
        let value = parameter.evaluate(pod);
        bytes += parameter.key.len() + value.len();
        if bytes > MAX_REQUEST {
            return Ok(None);
        }
        values.insert(parameter.key.as_str(), value);
    }
    // The API version is the one that KusionStack sends; Kubernetes has no such version.
    let resource = WebhookResource { api_version: "core/v1", kind: "Pod", name, parameters: values };
    serde_json::to_vec(&resource).map(Some)
}

/// Returns a random UUID (RFC 9562, version 4).
pub(crate) fn trace_id() -> String {
    let bits = fastrand::u128(..);
    let bits = bits & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters(fields: Value) -> Vec<Parameter> {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_request_is_full_at_its_limit() {
        let mut body = RequestBody::new("t", "outside", Some("PreCheck")).unwrap();
        assert!(body.is_empty());
        let left = MAX_REQUEST - body.empty - END.len();
        assert_eq!(body.add(&vec![b'1'; left + 1]), AddedPod::TooLarge);
        assert_eq!(body.add(&vec![b'1'; left - 2]), AddedPod::Added);
        assert_eq!(body.add(b"22"), AddedPod::NoRoom);
        assert_eq!(body.add(b"2"), AddedPod::Added);
        let json = body.finish();
        assert_eq!(json.len(), MAX_REQUEST);
        assert!(
            json.starts_with(br#"{"traceId":"t","ruleName":"outside","stage":"PreCheck","resources":[11"#)
        );
        assert!(json.ends_with(b"11,2]}"));
    }

    #[test]
    fn a_pod_has_its_parameters_up_to_the_limit() {
        let pod = json!({"metadata": {"annotations": {"large": "x".repeat(MAX_REQUEST / 2)}}});
        let large = json!({"fieldRef": {"fieldPath": "metadata.annotations['large']"}});
        let of = |fields: Value| resource_json("a", &parameters(fields), &pod).unwrap();
        let one = json!({"key": "1", "valueFrom": large});
        let two = json!({"key": "2", "valueFrom": large});
        assert!(of(json!([one])).is_some() && of(json!([one, two])).is_none());
    }
}
