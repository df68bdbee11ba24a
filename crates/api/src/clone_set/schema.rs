//! Changes to derived schemas: objects of any content, and bounds that keep the estimated cost of the CEL rules low.

use schemars::Schema;
use serde_json::{Value, json};

/// The largest number of markers of a hook, and of terms of a strategy.
const MAX_TERMS: u32 = 64;
/// The largest number of requirements of a selector, and of values in each of them.
const MAX_REQUIREMENTS: u32 = 64;
/// The longest key of a label: a domain, `/` and a name.
const MAX_KEY: u32 = 317;
/// The longest value of a label.
const MAX_VALUE: u32 = 63;

/// An object whose fields are kept whatever they are. The API server checks pods and claims when they are created.
pub(super) fn any_object(schema: &mut Schema) {
    schema.insert("type".to_owned(), "object".into());
    schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
}

/// The template of pods. It keeps all fields, and has types for those that rules read.
pub(super) fn pod_template(schema: &mut Schema) {
    any_object(schema);
    let part = |words: &str, properties: Value| {
        json!({
            "description": words, "type": "object", "nullable": true,
            "x-kubernetes-preserve-unknown-fields": true, "properties": properties,
        })
    };
    let labels = json!({
        "description": "The labels of the pods, with those that the selector selects.",
        "type": "object", "nullable": true, "additionalProperties": {"type": "string"},
    });
    let rule = |rule: &str, message: &str| json!([{"rule": rule, "message": message}]);
    // At the fields themselves: the API server does not repeat their rules for sets that are stored so.
    let policy = json!({
        "description": "Always, or not set.", "type": "string", "nullable": true,
        "x-kubernetes-validations":
            rule("self == 'Always'", "must be Always, because containers are replaced in the pods"),
    });
    let deadline = json!({
        "description": "Must not be set.", "type": "integer", "format": "int64", "nullable": true,
        "x-kubernetes-validations":
            rule("false", "is not supported, because the pods run until they are deleted; remove it"),
    });
    let spec = json!({"restartPolicy": policy, "activeDeadlineSeconds": deadline});
    let properties = json!({
        "metadata": part("The metadata of the pods.", json!({"labels": labels})),
        "spec": part("A PodSpec.", spec),
    });
    schema.insert("properties".to_owned(), properties);
}

/// A list of objects whose fields are kept.
pub(super) fn any_objects(schema: &mut Schema) {
    let item = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    schema.insert("items".to_owned(), item);
}

/// A number, at least 0. The text is checked by a rule, whose message says what is valid.
pub(super) fn number_or_percentage(schema: &mut Schema) {
    schema.insert("minimum".to_owned(), 0.into());
    schema.insert("maximum".to_owned(), i32::MAX.into());
}

/// Labels. Rules check the keys and values.
pub(super) fn labels(schema: &mut Schema) {
    schema.insert("maxProperties".to_owned(), MAX_TERMS.into());
    let value = json!({"type": "string", "maxLength": MAX_VALUE});
    schema.insert("additionalProperties".to_owned(), value);
}

/// A label selector that CEL rules compare.
pub(super) fn bounded_selector(schema: &mut Schema) {
    let bounds = [
        ("/properties/matchLabels", "maxProperties", MAX_TERMS),
        ("/properties/matchLabels/additionalProperties", "maxLength", MAX_VALUE),
        ("/properties/matchExpressions", "maxItems", MAX_REQUIREMENTS),
        ("/properties/matchExpressions/items/properties/key", "maxLength", MAX_KEY),
        ("/properties/matchExpressions/items/properties/operator", "maxLength", MAX_VALUE),
        ("/properties/matchExpressions/items/properties/values", "maxItems", MAX_REQUIREMENTS),
        ("/properties/matchExpressions/items/properties/values/items", "maxLength", MAX_VALUE),
    ];
    for (path, bound, most) in bounds {
        if let Some(Value::Object(part)) = schema.pointer_mut(path) {
            part.insert(bound.to_owned(), most.into());
        }
    }
}
