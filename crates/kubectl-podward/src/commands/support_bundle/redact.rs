//! Removes what may be secret, and what nobody needs.

use podward_core::webhook_path::without_webhook_secrets;
use serde_json::{Map, Value, json};

use super::names::is_our_image;

/// In place of what is removed.
const REMOVED: &str = "(removed)";
/// Parts of the keys of annotations that are kept, and of labels on the pods of others. Annotations of tools can hold whole
/// manifests.
const OUR_KEYS: [&str; 3] = ["kusionstack.io/", "podward.io/", "app.kubernetes.io/"];
/// Fields whose values may be secret, wherever they are.
const SECRET: [&str; 6] = ["password", "token", "authorization", "data", "stringData", "binaryData"];

/// What is kept of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Everything that is not secret.
    All,
    /// Metadata of the protocol, and the status.
    Protocol,
    /// Everything that is not secret, except the template of pods.
    WithoutTemplate,
    /// The name and the status.
    Status,
}

/// Returns the object without secrets.
pub(super) fn redacted(mut object: Value, keep: Keep) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if keep == Keep::WithoutTemplate
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("template");
    }
    let mut object = match keep {
        Keep::All | Keep::WithoutTemplate => object,
        Keep::Status => json!({
            "metadata": {"name": object["metadata"]["name"]}, "spec": {"taints": object["spec"]["taints"]},
            "status": {"conditions": object["status"]["conditions"], "nodeInfo": object["status"]["nodeInfo"]},
        }),
        Keep::Protocol => protocol(&object),
    };
    clean(&mut object);
    object
}

/// The part of a pod that the protocol uses.
fn protocol(pod: &Value) -> Value {
    let mut metadata = pod["metadata"].clone();
    if let Some(labels) = metadata["labels"].as_object_mut() {
        labels.retain(|key, _| is_ours(key));
    }
    let spec = &pod["spec"];
    let part = |name: &str| spec[name].clone();
    json!({
        "metadata": metadata,
        "spec": {
            "nodeName": part("nodeName"), "readinessGates": part("readinessGates"),
            "terminationGracePeriodSeconds": part("terminationGracePeriodSeconds"),
        },
        "status": pod["status"],
    })
}

fn is_ours(key: &str) -> bool {
    OUR_KEYS.iter().any(|ours| key.contains(ours))
}

fn clean(value: &mut Value) {
    match value {
        Value::Object(map) => clean_fields(map),
        Value::Array(list) => list.iter_mut().for_each(clean),
        Value::String(text) => *text = without_webhook_secrets(text).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn clean_fields(map: &mut Map<String, Value>) {
    let is_our_container = map.get("image").and_then(Value::as_str).is_some_and(is_our_image);
    for (key, value) in map {
        match (key.as_str(), &mut *value) {
            // The paths of webhooks begin with a secret, and other URLs may contain some, too.
            ("path", Value::String(_)) => *value = json!(REMOVED),
            ("url", Value::String(url)) => *url = origin(url),
            ("headers", Value::Object(headers)) => {
                headers.values_mut().for_each(|value| *value = json!(REMOVED))
            }
            ("annotations", Value::Object(annotations)) => {
                annotations.retain(|key, _| is_ours(key));
                annotations.values_mut().for_each(clean);
            }
            // The environment of containers, and what webhooks of rules receive.
            ("env" | "parameters", Value::Array(list)) => {
                for item in list {
                    if let Some(value) = item.get_mut("value").filter(|value| !value.is_null()) {
                        *value = json!(REMOVED);
                    }
                    clean(item);
                }
            }
            ("args", Value::Array(_)) if is_our_container => clean(value),
            // Of containers and their probes, and of the calls of a registry with an HTTP interface of its own.
            ("args" | "command", Value::Array(_)) | ("body", Value::String(_)) => *value = json!(REMOVED),
            (key, Value::String(_) | Value::Object(_))
                if SECRET.iter().any(|it| it.eq_ignore_ascii_case(key)) =>
            {
                *value = json!(REMOVED);
            }
            _ => clean(value),
        }
    }
}

/// Returns scheme, host and port of a URL.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_references_stay() {
        let object = json!({
            "metadata": {
                "name": "x", "managedFields": [{}],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "hidden", "kapp.k14s.io/original": "hidden",
                    "objectset.rio.cattle.io/applied": "hidden", "podward.io/a": "kept",
                },
            },
            "spec": {
                "containers": [{"env": [{"name": "A", "value": "hidden"}, {"name": "B", "valueFrom": {"x": 1}}]}],
                "url": "https://user:hidden@host.example:8443/hidden?token=hidden", "credentialsSecret": "kept", "headers": {"X-Token": "hidden"}, "password": "hidden",
            },
            "webhooks": [{"clientConfig": {"service": {"name": "kept", "path": "/hidden/mutate"}}}],
        });
        let text = redacted(object, Keep::All).to_string();
        assert!(!text.contains("hidden") && !text.contains("managedFields"), "{text}");
        assert_eq!(text.matches("kept").count(), 3, "{text}");
        assert!(text.contains("valueFrom") && text.contains("X-Token"), "{text}");
        assert!(text.contains("\"https://host.example:8443\""), "{text}");
    }

    #[test]
    fn templates_command_lines_and_bodies_contain_no_values() {
        let object = json!({
            "metadata": {"name": "x"},
            "spec": {
                "template": {
                    "metadata": {"annotations": {"vault.example/role": "hidden", "podward.io/a": "kept"}},
                    "spec": {"containers": [
                        {
                            "name": "lifecycle-controller", "args": ["kept"], "image": "r/podward/lifecycle-controller:1",
                            "livenessProbe": {"exec": {"command": ["hidden"]}},
                        },
                        {"name": "other", "image": "r/other:1", "args": ["--token=hidden"], "command": ["hidden"]},
                    ]},
                },
                "rules": [{"webhook": {"parameters": [
                    {"key": "kept", "value": "hidden"}, {"key": "b", "valueFrom": {"fieldRef": {"fieldPath": "kept"}}},
                ]}}],
                "connection": {"http": {"register": {"method": "PUT", "path": "/hidden", "body": "{\"key\": \"hidden\"}"}}},
            },
        });
        let text = redacted(object.clone(), Keep::All).to_string();
        assert!(!text.contains("hidden"), "{text}");
        assert_eq!(text.matches("kept").count(), 4, "{text}");
        let set = redacted(object, Keep::WithoutTemplate);
        assert!(set["spec"]["template"].is_null() && set["spec"]["rules"].is_array(), "{set}");
    }

    #[test]
    fn pods_of_others_keep_only_the_protocol() {
        let pod = json!({
            "metadata": {"name": "web", "labels": {"kusionstack.io/control": "true", "team": "hidden"}},
            "spec": {"nodeName": "n1", "containers": [{"image": "hidden"}]}, "status": {"phase": "Running"},
        });
        let text = redacted(pod, Keep::Protocol).to_string();
        assert!(!text.contains("hidden") && text.contains("kusionstack.io/control"), "{text}");
        let node = json!({"metadata": {"name": "n1", "labels": {"a": "hidden"}}, "status": {"conditions": [{"type": "Ready"}]}});
        let text = redacted(node, Keep::Status).to_string();
        assert!(!text.contains("hidden") && text.contains("Ready"), "{text}");
    }
}
