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

/// A list of such objects.
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
