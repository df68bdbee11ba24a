//! Annotations whose text is a JSON object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Reads an annotation. Text that cannot be read was not written by Podward and counts as an empty map.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(text: Option<&str>) -> BTreeMap<String, T> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns the text of an annotation, or `None` when `map` is empty.
pub(crate) fn text<T: Serialize>(map: &BTreeMap<String, T>) -> Option<String> {
    if map.is_empty() { None } else { serde_json::to_string(map).ok() }
}
