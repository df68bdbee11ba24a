//! The page of the custom resources: a section for each definition, a table for each of its parts.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use kube::ResourceExt;
use podward_api::{element_schema, value_schema};

use super::markdown::{cell, code, paragraphs};

const HEAD: &str = "# Custom resources\n\n\
    <!-- Written by `cargo xtask reference` from the types in crates/api. Changes belong there. -->\n\n\
    A field name with `[]` is an element of a list, one with `{}` a value of a map. A field in bold must be set.\n";

/// Returns the page that describes `crds`.
pub(super) fn page(crds: &[CustomResourceDefinition]) -> String {
    let mut page = HEAD.to_owned();
    for crd in crds {
        for version in &crd.spec.versions {
            page.push('\n');
            page.push_str(&section(crd, version));
        }
    }
    page
}

fn section(crd: &CustomResourceDefinition, version: &CustomResourceDefinitionVersion) -> String {
    let names = &crd.spec.names;
    let short = names.short_names.iter().flatten().map(|name| code(name)).collect::<Vec<_>>();
    let mut text = format!("## {}\n\n", names.kind);
    text.push_str(&format!("- `apiVersion`: {}\n", code(&format!("{}/{}", crd.spec.group, version.name))));
    text.push_str(&format!("- resource: {}, scope: {}\n", code(&crd.name_any()), crd.spec.scope));
    if !short.is_empty() {
        text.push_str(&format!("- short names: {}\n", short.join(", ")));
    }
    let Some(schema) = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()) else {
        return text;
    };
    if let Some(description) = &schema.description {
        text.push_str(&format!("\n{}\n", paragraphs(description)));
    }
    text.push_str(&checks("", schema));
    for (name, part) in schema.properties.iter().flatten() {
        text.push_str(&format!("\n### {} {name}\n\n", names.kind));
        if let Some(description) = &part.description {
            text.push_str(&format!("{}\n\n", paragraphs(description)));
        }
        text.push_str("| field | type | default, bounds | description |\n|---|---|---|---|\n");
        text.push_str(&rows("", part));
        text.push_str(&checks("", part));
    }
    text
}

/// Returns a row for each field of `schema` and of all schemas in it, depth first.
fn rows(prefix: &str, schema: &JSONSchemaProps) -> String {
    let mut rows = String::new();
    for (name, field) in schema.properties.iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let is_required = schema.required.iter().flatten().any(|required| required == name);
        let shown = if is_required { format!("**{}**", code(&path)) } else { code(&path) };
        let description = cell(field.description.as_deref().unwrap_or_default());
        let row = format!("| {shown} | {} | {} | {description} |\n", kind(field), bounds(field));
        rows.push_str(&row);
        rows.push_str(&inner_rows(&path, field));
    }
    rows
}

/// Returns the rows of the fields in `field`, of its elements if it is a list, or of its values if it is a map.
fn inner_rows(path: &str, field: &JSONSchemaProps) -> String {
    if let Some(element) = element_schema(field) {
        return rows(&format!("{path}[]"), element);
    }
    match value_schema(field) {
        Some(value) => rows(&format!("{path}{{}}"), value),
        None => rows(path, field),
    }
}

fn kind(field: &JSONSchemaProps) -> String {
    if field.x_kubernetes_int_or_string == Some(true) {
        return "integer or string".to_owned();
    }
    if let Some(element) = element_schema(field) {
        return format!("list of {}", kind(element));
    }
    if let Some(value) = value_schema(field) {
        return format!("map of {}", kind(value));
    }
    let name = field.type_.as_deref().unwrap_or("any");
    match field.format.as_deref() {
        Some(format @ "date-time") => format!("{name} ({format})"),
        _ => name.to_owned(),
    }
}

fn bounds(field: &JSONSchemaProps) -> String {
    let mut all = Vec::new();
    if let Some(default) = &field.default {
        all.push(format!("default {}", code(&default.0.to_string())));
    }
    let values = |field: &JSONSchemaProps| {
        let values = field.enum_.iter().flatten().filter(|value| !value.0.is_null());
        values.map(|value| code(value.0.as_str().unwrap_or(&value.0.to_string()))).collect::<Vec<_>>()
    };
    let own = values(field);
    let of_elements = element_schema(field).map(values).unwrap_or_default();
    if !own.is_empty() || !of_elements.is_empty() {
        all.push([own, of_elements].concat().join(", "));
    }
    let (least, most) = (field.minimum.map(|n| n.to_string()), field.maximum.map(|n| n.to_string()));
    all.extend(range(least, most, ""));
    let (least, most) = (field.min_length.map(|n| n.to_string()), field.max_length.map(|n| n.to_string()));
    all.extend(range(least, most, " characters"));
    let (least, most) = (field.min_items.map(|n| n.to_string()), field.max_items.map(|n| n.to_string()));
    all.extend(range(least, most, " elements"));
    if let Some(pattern) = &field.pattern {
        all.push(format!("matches {}", code(pattern)));
    }
    all.join("; ")
}

fn range(least: Option<String>, most: Option<String>, unit: &str) -> Option<String> {
    match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    }
}

/// Returns a list of what the API server checks beyond types and bounds, for `schema` and all schemas in it.
fn checks(path: &str, schema: &JSONSchemaProps) -> String {
    let mut found = Vec::new();
    // The parts of a resource have lists of their own.
    let is_root = schema.properties.iter().flatten().any(|(name, _)| name == "spec");
    collect_checks(path, schema, !is_root, &mut found);
    if found.is_empty() {
        String::new()
    } else {
        format!("\nThe API server also checks:\n\n{}", found.concat())
    }
}

fn collect_checks(path: &str, schema: &JSONSchemaProps, inner: bool, found: &mut Vec<String>) {
    let place = if path.is_empty() { String::new() } else { format!("{}: ", code(path)) };
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        let text = rule.message.as_deref().unwrap_or(&rule.rule);
        found.push(format!("- {place}{}\n", cell(text)));
    }
    if !inner {
        return;
    }
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (element_schema(field), value_schema(field)) {
            (Some(element), _) => {
                collect_checks(&path, field, false, found);
                collect_checks(&format!("{path}[]"), element, true, found);
            }
            (None, Some(value)) => {
                collect_checks(&path, field, false, found);
                collect_checks(&format!("{path}{{}}"), value, true, found);
            }
            (None, None) => collect_checks(&path, field, true, found),
        }
    }
}
