//! JSON as clients in Go write it: `null` in place of values, and no empty values.

use serde::{Deserialize, Deserializer};

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

/// Returns true if a value can be left out, because it is the default.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
