//! Whether pods can get another template while they run, and what changes in them then.

mod env;
mod qos;
mod resize;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use serde_json::{Map, Value};

use super::in_place_change::InPlaceChange;
use super::json;
use super::metadata::Metadata;

/// The difference between two templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There is none. A pod of the old revision needs nothing but the labels of the new one: the change is empty.
    Unchanged,
    /// Pods can be changed while they run.
    InPlace(InPlaceChange),
    /// Pods have to be recreated, for this reason.
    Recreate(String),
}

/// Returns the difference between two templates.
///
/// These changes need no other pod: images of containers, labels, annotations and finalizers, and cpu and memory of
/// containers while the QoS class stays the same. Metadata of a template that pods do not get is no difference.
#[must_use]
pub(crate) fn change(old_template: &Value, new_template: &Value) -> Change {
    match compare(old_template, new_template) {
        Ok(change) if change.is_empty() => Change::Unchanged,
        Ok(change) => Change::InPlace(change),
        Err(reason) => Change::Recreate(reason),
    }
}

/// Returns what changes, or why it needs other pods.
fn compare(old: &Value, new: &Value) -> Result<InPlaceChange, String> {
    let (old, new) = (json::normal_template(old), json::normal_template(new));
    let mut change = InPlaceChange::default();
    if old == new {
        return Ok(change);
    }
    let (old_spec, new_spec) = (spec(&old)?, spec(&new)?);
    let (old_containers, new_containers) = (containers(old_spec)?, containers(new_spec)?);
    let names = |containers: &[Value]| {
        containers.iter().map(|it| json::name(it).map(str::to_owned)).collect::<Vec<_>>()
    };
    if names(old_containers) != names(new_containers) {
        return Err("the names or the order of the containers change".to_owned());
    }
    for (old, new) in old_containers.iter().zip(new_containers) {
        compare_containers(old, new, &mut change)?;
    }
    let rest = |spec: &Map<String, Value>| without(spec, &["containers"]);
    if let Some(path) = json::first_difference("spec", &rest(old_spec), &rest(new_spec)) {
        return Err(format!("{path} changes"));
    }
    if !change.resources.is_empty() {
        let (before, after) = (qos::class(old_spec)?, qos::class(new_spec)?);
        if before != after {
            return Err(format!("the QoS class changes from {before:?} to {after:?}"));
        }
    }
    let (old_metadata, new_metadata) = (Metadata::of(&old)?, Metadata::of(&new)?);
    // A pod that runs can't get the readiness gate, and one that opts out during the update would keep it False.
    if opts_in(&old_metadata) != opts_in(&new_metadata) {
        return Err(format!("the label {CONTROL_LABEL}, which opts pods in, is added or removed"));
    }
    compare_metadata(&old_metadata, &new_metadata, &mut change);
    env::move_metadata(new_spec, &mut change)?;
    Ok(change)
}

fn opts_in(metadata: &Metadata) -> bool {
    metadata.labels.get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE)
}

fn spec(template: &Value) -> Result<&Map<String, Value>, String> {
    template.get("spec").and_then(Value::as_object).ok_or_else(|| "the template has no spec".to_owned())
}

fn containers(spec: &Map<String, Value>) -> Result<&[Value], String> {
    let list = spec.get("containers").and_then(Value::as_array);
    list.map(Vec::as_slice).ok_or_else(|| "the template has no containers".to_owned())
}

fn without(fields: &Map<String, Value>, keys: &[&str]) -> Value {
    Value::Object(
        fields
            .iter()
            .filter(|(key, _)| !keys.contains(&key.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
    )
}

fn compare_containers(old: &Value, new: &Value, change: &mut InPlaceChange) -> Result<(), String> {
    let (Some(name), Some(old), Some(new)) = (json::name(old), old.as_object(), new.as_object()) else {
        return Err("a container has no name".to_owned());
    };
    let place = format!("spec.containers[{name}]");
    let rest = |container: &Map<String, Value>| without(container, &["image", "resources"]);
    if let Some(path) = json::first_difference(&place, &rest(old), &rest(new)) {
        return Err(format!("{path} changes"));
    }
    match (old.get("image").and_then(Value::as_str), new.get("image").and_then(Value::as_str)) {
        (Some(old), Some(new)) if old != new => {
            change.images.insert(name.to_owned(), new.to_owned());
        }
        (Some(_), Some(_)) => {}
        _ if old.get("image") == new.get("image") => {}
        _ => return Err(format!("{place}.image is added or removed")),
    }
    let resources = resize::compare(old, new).map_err(|reason| format!("{place}.resources: {reason}"))?;
    if !resources.is_empty() {
        change.resources.insert(name.to_owned(), resources);
    }
    Ok(())
}

fn compare_metadata(old: &Metadata, new: &Metadata, change: &mut InPlaceChange) {
    change.labels = compare_texts(&old.labels, &new.labels);
    change.annotations = compare_texts(&old.annotations, &new.annotations);
    change.finalizers = compare_names(&old.finalizers, &new.finalizers);
}

fn compare_texts(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), None));
    let written = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    removed.chain(written.map(|(key, value)| (key.clone(), Some(value.clone())))).collect()
}

fn compare_names(old: &BTreeSet<String>, new: &BTreeSet<String>) -> BTreeMap<String, bool> {
    let removed = old.difference(new).map(|name| (name.clone(), false));
    removed.chain(new.difference(old).map(|name| (name.clone(), true))).collect()
}
