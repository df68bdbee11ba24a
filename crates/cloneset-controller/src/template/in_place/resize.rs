//! Whether the resources of a container can change while it runs.

use std::collections::BTreeMap;

use podward_api::quantity;
use serde_json::{Map, Value};

use crate::template::json;
use crate::template::resources::{RESIZABLE, Resources};

/// Returns the resources of the new container that change.
///
/// # Errors
/// Returns the reason if they cannot change while the container runs: API servers of all versions that are supported
/// must accept the change.
pub(super) fn compare(old: &Map<String, Value>, new: &Map<String, Value>) -> Result<Resources, String> {
    let rest = |container: &Map<String, Value>| {
        let mut resources = container.get("resources").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        if let Some(fields) = resources.as_object_mut() {
            fields.remove("limits");
            fields.remove("requests");
        }
        resources
    };
    if let Some(field) = json::first_difference("", &rest(old), &rest(new)) {
        return Err(if field.is_empty() { "they are no map".to_owned() } else { format!("{field} changes") });
    }
    let (before, after) =
        (Resources::of_json(old.get("resources"))?, Resources::of_json(new.get("resources"))?);
    let changed = after.without(&before);
    check("limit", &before.limits, &after.limits, &changed.limits)?;
    check("request", &before.requests, &after.requests, &changed.requests)?;
    let restarts = restarts(new, "memory");
    if let (Some(from), Some(to)) = (before.limits.get("memory"), changed.limits.get("memory"))
        && !restarts
        && quantity::nanos(to) < quantity::nanos(from)
    {
        return Err("a running container cannot get less memory, but for the resize policy RestartContainer"
            .to_owned());
    }
    Ok(changed)
}

fn check(
    kind: &str,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    changed: &BTreeMap<String, String>,
) -> Result<(), String> {
    if let Some(name) = before.keys().find(|name| !after.contains_key(*name)) {
        return Err(format!("the {kind} of {name} is removed"));
    }
    if let Some(name) = changed.keys().find(|name| !RESIZABLE.contains(&name.as_str())) {
        return Err(format!("the {kind} of {name} changes"));
    }
    Ok(())
}

/// Returns true if the container starts again when the resource changes.
fn restarts(container: &Map<String, Value>, resource: &str) -> bool {
    let policies = container.get("resizePolicy").and_then(Value::as_array);
    policies.into_iter().flatten().any(|policy| {
        policy.get("resourceName").and_then(Value::as_str) == Some(resource)
            && policy.get("restartPolicy").and_then(Value::as_str) == Some("RestartContainer")
    })
}
