//! JSON of templates: without what means nothing, and with a fixed order.

use serde_json::{Map, Value};

/// Returns the template without what means nothing, so that templates that went through different programs are equal:
/// nulls, empty lists, empty resources and security contexts, and the time of creation. What an empty object elsewhere
/// means is not known, so it stays.
pub(super) fn normal_template(template: &Value) -> Value {
    let mut template = normal(template);
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
        remove_empty(metadata, &["labels", "annotations"]);
    }
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        remove_empty(spec, &["securityContext", "resources"]);
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
                        remove_empty(resources, &["limits", "requests"]);
                    }
                    remove_empty(container, &["securityContext", "resources"]);
                }
            }
        }
    }
    if let Some(fields) = template.as_object_mut() {
        remove_empty(fields, &["metadata"]);
    }
    template
}

fn remove_empty(fields: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        if fields.get(*key).and_then(Value::as_object).is_some_and(Map::is_empty) {
            fields.remove(*key);
        }
    }
}

fn normal(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, it)| !is_nothing(it));
            Value::Object(fields.map(|(key, it)| (key.clone(), normal(it))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(normal).collect()),
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the value as text with sorted keys.
pub(super) fn canonical_text(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, it) in fields {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(it, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write(item, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Returns the path of the first field in which the values differ, like `spec.volumes[data].emptyDir`. `None` if they
/// are equal.
pub(super) fn first_difference(path: &str, old: &Value, new: &Value) -> Option<String> {
    if old == new {
        return None;
    }
    let inner = match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
            keys.sort();
            let mut keys = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
            keys.next().and_then(|key| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => first_difference(&path, old, new),
                    _ => Some(path),
                }
            })
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let mut items = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
            items.next().and_then(|(index, (old, new))| match (name(old), name(new)) {
                (Some(one), Some(other)) if one != other => None,
                (Some(name), _) => first_difference(&format!("{path}[{name}]"), old, new),
                (None, _) => first_difference(&format!("{path}[{index}]"), old, new),
            })
        }
        _ => None,
    };
    Some(inner.unwrap_or_else(|| path.to_owned()))
}

/// Returns the field `name` of the value.
pub(super) fn name(value: &Value) -> Option<&str> {
    value.get("name").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_means_nothing_is_no_difference() {
        let full = json!({
            "$patch": "replace",
            "metadata": {"creationTimestamp": null, "labels": {}},
            "spec": {
                "securityContext": {}, "volumes": [], "hostname": null,
                "containers": [{"name": "app", "resources": {"limits": {}}, "args": [], "securityContext": {}}],
            },
        });
        assert_eq!(normal_template(&full), json!({"spec": {"containers": [{"name": "app"}]}}));
        let kept = json!({"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}});
        assert_eq!(normal_template(&kept), kept, "an emptyDir is empty and means something");
    }

    #[test]
    fn differences_have_a_path() {
        let differ = |old, new| first_difference("", &old, &new);
        assert_eq!(differ(json!({"a": 1}), json!({"a": 1})), None);
        assert_eq!(differ(json!({"a": {"b": 1}}), json!({"a": {"b": 2}})), Some("a.b".to_owned()));
        assert_eq!(differ(json!({"a": 1}), json!({"a": 1, "b": 2})), Some("b".to_owned()));
        assert_eq!(differ(json!({"a": [1]}), json!({"a": [1, 2]})), Some("a".to_owned()));
        assert_eq!(
            differ(json!({"a": [{"name": "x", "b": 1}]}), json!({"a": [{"name": "x", "b": 2}]})),
            Some("a[x].b".to_owned())
        );
        assert_eq!(differ(json!({"a": [1, 2]}), json!({"a": [1, 3]})), Some("a[1]".to_owned()));
        assert_eq!(
            differ(json!({"a": [{"name": "x"}]}), json!({"a": [{"name": "y"}]})),
            Some("a".to_owned())
        );
        assert_eq!(differ(json!(1), json!(2)), Some(String::new()));
    }
}
