//! Changes to parts of objects.

use serde_json::Value;

/// Sets in `into` what `change` contains. Objects are merged; everything else is replaced, also by null.
pub(crate) fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}
