//! What is lost when an older definition takes the place of a newer one.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use podward_api::downgrade::{LostVersion, lost_fields, lost_versions};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A version whose objects have a spec of this schema.
fn version(spec: &Value) -> CustomResourceDefinitionVersion {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    serde_json::from_value(version).unwrap()
}

/// The fields that an object with this spec loses.
fn lost(spec: Value, newer: &Value, older: &Value) -> Vec<String> {
    let object =
        json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": spec, "status": {"seen": 1}});
    lost_fields(&object, &version(newer), &version(older)).into_iter().collect()
}

fn object_of(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn fields_that_only_the_newer_schema_has_are_lost_where_they_are_set() {
    let text = json!({"type": "string"});
    let older = object_of(json!({
        "name": text,
        "items": {"type": "array", "items": object_of(json!({"key": text}))},
        "parts": {"type": "object", "additionalProperties": object_of(json!({"key": text}))},
    }));
    let mut newer = older.clone();
    newer["properties"]["shard"] = text;
    newer["properties"]["items"]["items"]["properties"]["weight"] = json!({"type": "integer"});
    newer["properties"]["parts"]["additionalProperties"]["properties"]["weight"] = json!({"type": "integer"});
    assert_eq!(lost(json!({"name": "a", "items": [{"key": "b"}]}), &newer, &older), [""; 0]);
    let spec = json!({
        "name": "a", "shard": "b", "items": [{"key": "c"}, {"key": "d", "weight": 1}, {"weight": 2}],
        "parts": {"one": {"weight": 3}},
    });
    assert_eq!(
        lost(spec.clone(), &newer, &older),
        ["spec.items[].weight", "spec.parts{}.weight", "spec.shard"]
    );
    assert_eq!(lost(spec, &newer, &newer), [""; 0]);
}

#[test]
fn only_the_first_field_of_a_path_is_named() {
    let older = object_of(json!({}));
    let newer = object_of(json!({"limits": object_of(json!({"cpu": {"type": "string"}}))}));
    assert_eq!(lost(json!({"limits": {"cpu": "1"}}), &newer, &older), ["spec.limits"]);
}

/// The API server adds them to every object, also where nobody uses them.
#[test]
fn defaults_are_not_lost() {
    let limits = json!({
        "type": "object", "default": {"cpu": 1},
        "properties": {"cpu": {"type": "integer"}, "memory": {"type": "integer", "default": 2}},
    });
    let newer = object_of(json!({"limits": limits, "mode": {"type": "string", "default": "Hold"}}));
    let older = object_of(json!({}));
    let defaults = json!({"limits": {"cpu": 1, "memory": 2}, "mode": "Hold"});
    assert_eq!(lost(defaults, &newer, &older), [""; 0]);
    let other = json!({"limits": {"cpu": 1, "memory": 3}, "mode": "Cancel"});
    assert_eq!(lost(other, &newer, &older), ["spec.limits", "spec.mode"]);
    assert_eq!(lost(json!({"mode": null}), &newer, &older), [""; 0]);
}

#[test]
fn what_is_kept_is_not_lost() {
    let newer = object_of(json!({"any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}));
    let spec = json!({"any": {"a": {"b": 1}}});
    assert_eq!(lost(spec.clone(), &newer, &newer), [""; 0]);
    assert_eq!(lost(spec.clone(), &newer, &object_of(json!({"any": {"type": "object"}}))), ["spec.any.a"]);
    let map = json!({"type": "object", "additionalProperties": true});
    assert_eq!(lost(spec.clone(), &newer, &object_of(json!({"any": map}))), [""; 0]);
    let text = json!({"type": "object", "additionalProperties": {"type": "string"}});
    assert_eq!(lost(spec, &newer, &object_of(json!({"any": text}))), ["spec.any{}.b"]);
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {}});
    let pod = json!({"any": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}});
    assert_eq!(lost(pod, &newer, &object_of(json!({"any": embedded}))), ["spec.any.spec"]);
}

fn definition(versions: &[(&str, bool)], stored: &[&str]) -> CustomResourceDefinition {
    let version = |(name, served): &(&str, bool)| json!({"name": name, "served": served, "storage": false});
    let names = json!({"kind": "A", "plural": "as"});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let definition = json!({
        "metadata": {"name": "as.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Cluster", "versions": versions},
        "status": {"storedVersions": stored},
    });
    serde_json::from_value(definition).unwrap()
}

#[test]
fn versions_are_lost_that_are_served_or_stored() {
    let lost = |name: &str, is_stored| LostVersion { name: name.to_owned(), is_stored };
    let older = definition(&[("v1", true), ("v0", false)], &[]);
    let found = |versions, stored| lost_versions(&definition(versions, stored), &older);
    assert_eq!(found(&[("v1", true)], &["v1"]), []);
    assert_eq!(found(&[("v1", true), ("v2", true)], &["v1"]), [lost("v2", false)]);
    assert_eq!(found(&[("v1", true), ("v2", true)], &["v1", "v2"]), [lost("v2", true)]);
    assert_eq!(found(&[("v1", true), ("v2", false)], &["v1"]), []);
    assert_eq!(found(&[("v1", true), ("v2", false)], &["v2"]), [lost("v2", true)]);
    // The older definition has it, and does not serve it.
    assert_eq!(found(&[("v1", true), ("v0", true)], &["v0"]), [lost("v0", false)]);
    assert_eq!(found(&[("v1", true), ("v0", false)], &["v0"]), []);
}

#[test]
fn the_definitions_of_this_version_lose_nothing_to_themselves() {
    let own = podward_api::crds().into_iter().chain([podward_api::clone_set_crd()]);
    let fields = json!({"shard": "a"});
    for definition in own {
        assert_eq!(lost_versions(&definition, &definition), []);
        for version in &definition.spec.versions {
            assert_eq!(lost_fields(&json!({"spec": {}}), version, version), BTreeSet::new());
            let lost = lost_fields(&json!({"spec": fields}), version, version);
            assert_eq!(lost, BTreeSet::from(["spec.shard".to_owned()]), "{:?}", definition.metadata.name);
        }
    }
}

/// Objects of objects, lists and texts.
fn member() -> impl Strategy<Value = Value> {
    let leaf = "[a-c]{0,2}".prop_map(Value::String);
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn spec() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", member(), 1..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// Returns a schema of everything that these values contain. Structural schemas have one type for each value, but
/// pruning does not look at it.
fn schema_of(values: &[&Value]) -> Value {
    let mut properties: Map<String, Value> = Map::new();
    let names: BTreeSet<&String> =
        values.iter().filter_map(|value| value.as_object()).flat_map(Map::keys).collect();
    for name in names {
        let members: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
        properties.insert(name.clone(), schema_of(&members));
    }
    let items: Vec<&Value> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
    json!({"properties": properties, "items": if items.is_empty() { json!({}) } else { schema_of(&items) }})
}

/// Returns each field of a schema: its name, and the pointer to it.
fn fields(schema: &Value, name: &str, pointer: &str, all: &mut Vec<(String, String)>) {
    for (member, schema) in schema["properties"].as_object().into_iter().flatten() {
        let (name, pointer) = (format!("{name}.{member}"), format!("{pointer}/properties/{member}"));
        fields(schema, &name, &pointer, all);
        all.push((name, pointer));
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{name}[]"), &format!("{pointer}/items"), all);
    }
}

proptest! {
    /// Exactly the field that the older schema does not have is lost, and nothing the other way round.
    #[test]
    fn a_field_that_is_missing_is_lost(spec in spec(), choice in any::<prop::sample::Index>()) {
        let newer = schema_of(&[&spec]);
        prop_assert_eq!(lost(spec.clone(), &newer, &newer), Vec::<String>::new());
        let mut all = Vec::new();
        fields(&newer, "spec", "", &mut all);
        let (name, pointer) = choice.get(&all);
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        let mut older = newer.clone();
        older.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(member).unwrap();
        prop_assert_eq!(&lost(spec.clone(), &newer, &older), std::slice::from_ref(name));
        prop_assert_eq!(lost(spec, &older, &newer), Vec::<String>::new());
    }

    /// Whatever objects and schemas there are.
    #[test]
    fn any_object_and_schemas_can_be_compared(spec in member(), newer in spec_of_schema(), older in spec_of_schema()) {
        let _ = lost(spec, &newer, &older);
    }
}

fn spec_of_schema() -> impl Strategy<Value = Value> {
    spec().prop_map(|spec| schema_of(&[&spec]))
}
