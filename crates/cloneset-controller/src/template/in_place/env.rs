//! Labels and annotations in the environment of containers.

use serde_json::{Map, Value};

use crate::template::in_place_change::InPlaceChange;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Label,
    Annotation,
}

/// Moves labels and annotations that the environment of containers contains from `labels` and `annotations` to `env`.
///
/// # Errors
/// Fails if a container contains one that is removed, or if an init container contains one: it does not run again.
pub(super) fn move_metadata(spec: &Map<String, Value>, change: &mut InPlaceChange) -> Result<(), String> {
    for container in items(spec.get("initContainers")) {
        if let Some((name, key, _)) =
            references(container).find(|(_, key, kind)| value(change, *kind, key).is_some())
        {
            return Err(format!(
                "the environment of the init container {name} contains {key}, which changes"
            ));
        }
    }
    let mut moved = Vec::new();
    for container in items(spec.get("containers")) {
        for (name, key, kind) in references(container) {
            let text = match value(change, kind, key) {
                None => continue,
                Some(Some(text)) => text.clone(),
                Some(None) => {
                    return Err(format!(
                        "the environment of the container {name} contains {key}, which is removed"
                    ));
                }
            };
            let metadata = change.env.entry(name.to_owned()).or_default();
            let map = match kind {
                Kind::Label => &mut metadata.labels,
                Kind::Annotation => &mut metadata.annotations,
            };
            map.insert(key.to_owned(), text);
            moved.push((key, kind));
        }
    }
    for (key, kind) in moved {
        match kind {
            Kind::Label => change.labels.remove(key),
            Kind::Annotation => change.annotations.remove(key),
        };
    }
    Ok(())
}

fn value<'a>(change: &'a InPlaceChange, kind: Kind, key: &str) -> Option<&'a Option<String>> {
    match kind {
        Kind::Label => change.labels.get(key),
        Kind::Annotation => change.annotations.get(key),
    }
}

/// Returns the labels and annotations in the environment of the container, with its name.
fn references(container: &Value) -> impl Iterator<Item = (&str, &str, Kind)> {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    items(container.get("env")).iter().filter_map(move |variable| {
        let path = variable.pointer("/valueFrom/fieldRef/fieldPath")?.as_str()?;
        let (rest, kind) = match path.strip_prefix("metadata.labels") {
            Some(rest) => (rest, Kind::Label),
            None => (path.strip_prefix("metadata.annotations")?, Kind::Annotation),
        };
        Some((name, rest.strip_prefix("['")?.strip_suffix("']")?, kind))
    })
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
