//! Changes to derived schemas, and parts of the schemas of definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::Schema;

/// Sets the format to `int64`. The API server warns about the derived format `uint32`, which it does not know.
pub(crate) fn known_format(schema: &mut Schema) {
    schema.insert("format".to_owned(), "int64".into());
}

/// Returns the schema of the elements of a list, or `None` if `schema` is not that of a list.
#[must_use]
pub fn element_schema(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(schema) => Some(schema),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// Returns the schema of the values of a map, or `None` if `schema` is not that of a map or does not specify its values.
#[must_use]
pub fn value_schema(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(schema) => Some(schema),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}
