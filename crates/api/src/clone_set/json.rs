//! JSON as clients in Go write it: `null` in place of values, and no empty values.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a value, and the default for `null`.
///
/// # Errors
/// Fails if it is another value than one of `T`.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a number, and `NULL` for `null`.
pub(super) fn null_as_number<'de, const NULL: i32, D>(deserializer: D) -> Result<i32, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or(NULL))
}

/// Reads a number of pods or a percentage, and `None` for `null`. What is neither, such as a number that is too large,
/// is a text then: one set that is invalid does not stop the list of all sets. `CloneSet::check` reports it.
pub(super) fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IntOrString>, D::Error> {
    let small = |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok());
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => None,
        Value::String(text) => Some(IntOrString::String(text)),
        value => Some(small(&value).map_or_else(|| IntOrString::String(value.to_string()), IntOrString::Int)),
    })
}

/// Reads a number of pods or a percentage, and 0 for `null`.
pub(super) fn amount_or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IntOrString, D::Error> {
    Ok(amount(deserializer)?.unwrap_or_default())
}

/// Reads a list, and the empty one for `null`. What is no list is one with its text, for the reason of [`amount`].
pub(super) fn any_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        value => vec![Value::String(value.to_string())],
    })
}

/// Returns true if a value can be left out, because it is the default.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
