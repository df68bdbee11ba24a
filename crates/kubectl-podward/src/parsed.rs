//! Objects of the API as types.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;

/// Returns the object as a type that has some or all of its fields.
///
/// # Errors
/// When it does not have the fields of the type.
pub(crate) fn parsed<T: DeserializeOwned>(object: &DynamicObject) -> Result<T> {
    let kind = object.types.as_ref().map_or("object", |types| types.kind.as_str());
    let what = || format!("parse {kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
    let json = serde_json::to_value(object).with_context(what)?;
    serde_json::from_value(json).with_context(what)
}
