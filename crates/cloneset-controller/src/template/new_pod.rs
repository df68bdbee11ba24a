//! New pods.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use podward_core::cloneset::State;
use podward_core::cloneset::keys::{INSTANCE_ID, STATE_LABEL, STATE_TIME, UPDATE_READY};
use serde_json::{Map, Value, json};

use super::claims::{claim_name, claim_template_name};
use super::metadata::Metadata;
use super::owner::Owner;
use super::revision_hash::revision_labels;
use super::seconds::whole_seconds;

/// What a new pod is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPod<'a> {
    /// The set that owns it.
    pub(crate) set: &'a Owner,
    /// The template of its revision.
    pub(crate) template: &'a Value,
    /// The name of its revision.
    pub(crate) revision: &'a str,
    /// Its identity.
    pub(crate) id: &'a str,
    /// The claim templates of the set. Their claims replace volumes of the template with the same name.
    pub(crate) claim_templates: &'a [Value],
    /// The readiness gates that it gets beside `InPlaceUpdateReady`.
    pub(crate) readiness_gates: &'a [&'a str],
    /// The time.
    pub(crate) now: Timestamp,
}

/// Returns a new pod.
///
/// # Errors
/// Returns a text for people if the template has no spec, or metadata of a template is invalid.
pub(crate) fn new_pod(new: &NewPod<'_>) -> Result<Value, String> {
    let metadata = Metadata::of(new.template)?;
    let mut spec =
        new.template.get("spec").and_then(Value::as_object).cloned().ok_or("the template has no spec")?;
    add_readiness_gates(&mut spec, new.readiness_gates);
    add_volumes(&mut spec, new)?;

    let mut labels = metadata.labels;
    let own = [(INSTANCE_ID, new.id), (STATE_LABEL, State::PreparingNormal.as_str())];
    for (key, value) in own.into_iter().chain(revision_labels(new.revision)) {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let mut annotations = metadata.annotations;
    annotations.insert(STATE_TIME.to_owned(), whole_seconds(new.now));
    let mut fields = json!({
        "name": format!("{}-{}", new.set.name, new.id),
        "namespace": new.set.namespace,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [new.set.reference()],
    });
    if !metadata.finalizers.is_empty() {
        fields["finalizers"] = json!(metadata.finalizers);
    }
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": fields, "spec": spec}))
}

fn add_readiness_gates(spec: &mut Map<String, Value>, others: &[&str]) {
    let mut gates = list(spec, "readinessGates");
    for wanted in [UPDATE_READY].iter().chain(others) {
        if !gates.iter().any(|gate| gate.get("conditionType").and_then(Value::as_str) == Some(*wanted)) {
            gates.push(json!({"conditionType": wanted}));
        }
    }
    spec.insert("readinessGates".to_owned(), Value::Array(gates));
}

fn add_volumes(spec: &mut Map<String, Value>, new: &NewPod<'_>) -> Result<(), String> {
    if new.claim_templates.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = new.claim_templates.iter().map(claim_template_name).collect::<Result<_, _>>()?;
    let replaced: BTreeSet<&str> = names.iter().copied().collect();
    let mut volumes: Vec<Value> = replaced
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": claim_name(name, new.set, new.id)}}))
        .collect();
    let others = list(spec, "volumes").into_iter();
    volumes.extend(
        others
            .filter(|it| it.get("name").and_then(Value::as_str).is_none_or(|name| !replaced.contains(name))),
    );
    spec.insert("volumes".to_owned(), Value::Array(volumes));
    Ok(())
}

fn list(spec: &Map<String, Value>, field: &str) -> Vec<Value> {
    spec.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}
