//! What is lost when an older resource definition takes the place of a newer one.
//!
//! The API server removes fields that a schema does not specify from each object that is written ("pruning"). It
//! refuses a definition without a version in which objects are stored.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

use crate::schema::{element_schema, value_schema};

/// The fields of every object that no schema has to specify.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Controllers write it again.
const STATUS: &str = "status";

/// A version that the older definition does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostVersion {
    /// The name, such as `v1`.
    pub name: String,
    /// True if objects may be stored in it and the older definition does not have it. The API server refuses such a
    /// definition.
    pub is_stored: bool,
}

/// Returns the versions that `newer` serves and `older` does not, and those in which objects may be stored and that
/// `older` does not have. `newer` is a definition as the API server returns it, with its status.
#[must_use]
pub fn lost_versions(newer: &CustomResourceDefinition, older: &CustomResourceDefinition) -> Vec<LostVersion> {
    let has = |definition: &CustomResourceDefinition, name: &str| {
        definition.spec.versions.iter().any(|version| version.name == name)
    };
    let serves = |definition: &CustomResourceDefinition, name: &str| {
        definition.spec.versions.iter().any(|version| version.name == name && version.served)
    };
    let stored = newer.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    let stored: BTreeSet<&str> = stored.map(String::as_str).collect();
    let names = newer.spec.versions.iter().map(|version| version.name.as_str());
    let names: BTreeSet<&str> = names.chain(stored.iter().copied()).collect();
    let mut lost = Vec::new();
    for name in names {
        let is_stored = stored.contains(name) && !has(older, name);
        if is_stored || serves(newer, name) && !serves(older, name) {
            lost.push(LostVersion { name: name.to_owned(), is_stored });
        }
    }
    lost
}

/// Returns the fields of `object` that the API server removes when the version `older` of a definition has taken the
/// place of `newer`. `object` is one that the API server returned in this version.
///
/// A field name with `[]` is an element of a list, one with `{}` a value of a map. Fields below a field that is removed
/// are not named. Fields with their default are not returned, because the API server adds them to every object. Neither
/// are those of the status, which controllers write again. Validation is not compared: values that the older schema
/// refuses stay until the object is changed.
#[must_use]
pub fn lost_fields(
    object: &Value,
    newer: &CustomResourceDefinitionVersion,
    older: &CustomResourceDefinitionVersion,
) -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    let Value::Object(members) = object else { return lost };
    // A version without a schema prunes nothing.
    let Some(older) = schema_of(older) else { return lost };
    let newer = schema_of(newer);
    let skipped = OF_EVERY_OBJECT.into_iter().chain([STATUS]);
    let rest: Map<String, Value> = members
        .iter()
        .filter(|(name, _)| !skipped.clone().any(|skipped| skipped == *name))
        .map(|(name, member)| (name.clone(), member.clone()))
        .collect();
    collect_lost_members("", &rest, newer, older, &mut lost);
    lost
}

fn schema_of(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn collect_lost(
    path: &str,
    value: &Value,
    newer: Option<&JSONSchemaProps>,
    older: &JSONSchemaProps,
    lost: &mut BTreeSet<String>,
) {
    match value {
        Value::Object(members) => collect_lost_members(path, members, newer, older, lost),
        Value::Array(items) => {
            let Some(schema) = element_schema(older) else { return };
            let path = format!("{path}[]");
            for item in items {
                collect_lost(&path, item, newer.and_then(element_schema), schema, lost);
            }
        }
        _ => {}
    }
}

fn collect_lost_members(
    path: &str,
    members: &Map<String, Value>,
    newer: Option<&JSONSchemaProps>,
    older: &JSONSchemaProps,
    lost: &mut BTreeSet<String>,
) {
    let is_embedded = older.x_kubernetes_embedded_resource == Some(true);
    for (name, member) in members {
        if is_embedded && OF_EVERY_OBJECT.contains(&name.as_str()) {
            continue;
        }
        let newer = newer.and_then(|schema| property(schema, name).or_else(|| value_schema(schema)));
        if let Some(schema) = property(older, name) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect_lost(&path, member, newer, schema, lost);
        } else if let Some(schema) = value_schema(older) {
            collect_lost(&format!("{path}{{}}"), member, newer, schema, lost);
        } else if !keeps_everything(older) && !is_default(member, newer) {
            lost.insert(if path.is_empty() { name.clone() } else { format!("{path}.{name}") });
        }
    }
}

fn property<'s>(schema: &'s JSONSchemaProps, name: &str) -> Option<&'s JSONSchemaProps> {
    schema.properties.as_ref()?.get(name)
}

/// Returns true if members that the schema does not specify are kept.
fn keeps_everything(schema: &JSONSchemaProps) -> bool {
    schema.x_kubernetes_preserve_unknown_fields == Some(true)
        || matches!(schema.additional_properties, Some(JSONSchemaPropsOrBool::Bool(true)))
}

/// Returns true if the API server makes this value for a field that is not set, or for null.
fn is_default(value: &Value, schema: Option<&JSONSchemaProps>) -> bool {
    let Some(schema) = schema else { return value.is_null() };
    let default = schema.default.as_ref().map(|default| {
        let mut default = default.0.clone();
        add_defaults(&mut default, schema);
        default
    });
    value.is_null() || default.as_ref() == Some(value)
}

/// Adds the defaults of members to a default.
fn add_defaults(value: &mut Value, schema: &JSONSchemaProps) {
    match value {
        Value::Object(members) => {
            for (name, schema) in schema.properties.iter().flatten() {
                if let Some(default) = &schema.default {
                    members.entry(name).or_insert_with(|| default.0.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if let Some(schema) = property(schema, name).or_else(|| value_schema(schema)) {
                    add_defaults(member, schema);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = element_schema(schema) else { return };
            items.iter_mut().for_each(|item| add_defaults(item, schema));
        }
        _ => {}
    }
}
