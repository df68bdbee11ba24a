//! The PersistentVolumeClaims of pods.
//!
//! A pod has a claim for each template of the set. It belongs to the set, and to the pod by its identity. Claims of a pod
//! that its set deletes are deleted with it. When others have deleted a pod, a new one gets its identity and claims; or the
//! claims are deleted, if the set says so.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use podward_core::cloneset::keys::INSTANCE_ID;
use serde_json::{Map, Value, json};

use super::json;
use super::metadata::Metadata;
use super::owner::Owner;
use crate::pod::Pod;

#[cfg(test)]
mod tests;

/// The claims of a set that no pod uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnusedClaims<'a> {
    /// Their pods are gone: they can be deleted.
    pub(crate) delete: Vec<&'a PersistentVolumeClaim>,
    /// Their pods end: they can be handed over to them, so that they are deleted with them.
    pub(crate) hand_over: Vec<(&'a PersistentVolumeClaim, &'a Pod)>,
}

/// The identities with claims that no active pod uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KeptIds<'a> {
    /// No pod has them: new pods can get them.
    pub(crate) free: BTreeSet<String>,
    /// Pods that end have the others. New pods can get them when these are gone.
    pub(crate) occupied: Vec<&'a Pod>,
}

/// Returns the claims of the pod with the identity `id`, by the names of their templates.
///
/// # Errors
/// Returns a text for people if a template has no name, or its labels or annotations are no texts.
pub(crate) fn new_claims(
    set: &Owner,
    selector: &BTreeMap<String, String>,
    templates: &[Value],
    id: &str,
) -> Result<BTreeMap<String, Value>, String> {
    templates
        .iter()
        .map(|template| Ok((claim_template_name(template)?.to_owned(), claim(set, selector, template, id)?)))
        .collect()
}

fn claim(
    set: &Owner,
    selector: &BTreeMap<String, String>,
    template: &Value,
    id: &str,
) -> Result<Value, String> {
    let name = claim_template_name(template)?;
    let metadata = Metadata::of(template).map_err(|error| format!("the claim template {name}: {error}"))?;
    let mut labels = metadata.labels;
    labels.extend(selector.clone());
    labels.insert(INSTANCE_ID.to_owned(), id.to_owned());
    let mut claim = template.as_object().cloned().unwrap_or_default();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), claim_name(name, set, id).into());
    fields.insert("namespace".to_owned(), set.namespace.as_str().into());
    fields.insert("labels".to_owned(), json!(labels));
    fields.insert("ownerReferences".to_owned(), json!([set.reference()]));
    if !metadata.annotations.is_empty() {
        fields.insert("annotations".to_owned(), json!(metadata.annotations));
    }
    if !metadata.finalizers.is_empty() {
        fields.insert("finalizers".to_owned(), json!(metadata.finalizers));
    }
    claim.remove("status");
    claim.insert("apiVersion".to_owned(), "v1".into());
    claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    claim.insert("metadata".to_owned(), Value::Object(fields));
    Ok(Value::Object(claim))
}

/// Returns the name of the claim of a pod.
pub(crate) fn claim_name(template: &str, set: &Owner, id: &str) -> String {
    format!("{template}-{}-{id}", set.name)
}

/// Returns the name of a claim template.
///
/// # Errors
/// Returns a text for people if it has none.
pub(super) fn claim_template_name(template: &Value) -> Result<&str, String> {
    let name = template.get("metadata").and_then(json::name).filter(|it| !it.is_empty());
    name.ok_or_else(|| "a claim template has no name".to_owned())
}

/// Returns the identities with claims of the set that no active pod uses. `ending` are all pods of the set that are not
/// active.
#[must_use]
pub(crate) fn kept_ids<'a>(
    set: &Owner,
    active: impl IntoIterator<Item = &'a Pod>,
    ending: impl IntoIterator<Item = &'a Pod>,
    claims: impl IntoIterator<Item = &'a PersistentVolumeClaim> + Clone,
) -> KeptIds<'a> {
    // A pod cannot use a claim that is being deleted.
    let going = claims.clone().into_iter();
    let going = going.filter(|it| set.owns(it) && it.metadata.deletion_timestamp.is_some());
    let going: BTreeSet<&str> = going.filter_map(|it| id(it.labels())).collect();
    let is_usable = |id: &&str| !going.contains(id) && is_name(id);
    let unused = unused_claims(set, active, ending, claims);
    let free = unused.delete.into_iter().filter_map(|it| id(it.labels())).filter(is_usable);
    let occupied = unused.hand_over.into_iter().filter_map(|(claim, pod)| Some((id(claim.labels())?, pod)));
    let occupied: BTreeMap<&str, &Pod> = occupied.filter(|(id, _)| is_usable(id)).collect();
    KeptIds { free: free.map(str::to_owned).collect(), occupied: occupied.into_values().collect() }
}

/// Returns those of `claims` that no active pod uses. `ending` are all pods of the set that are not active.
#[must_use]
pub(crate) fn unused_claims<'a>(
    set: &Owner,
    active: impl IntoIterator<Item = &'a Pod>,
    ending: impl IntoIterator<Item = &'a Pod>,
    claims: impl IntoIterator<Item = &'a PersistentVolumeClaim>,
) -> UnusedClaims<'a> {
    let active: BTreeSet<&str> = active.into_iter().filter_map(|it| id(it.labels())).collect();
    let ending: BTreeMap<&str, &Pod> =
        ending.into_iter().filter_map(|it| Some((id(it.labels())?, it))).collect();
    let mut unused = UnusedClaims::default();
    for claim in claims.into_iter().filter(|it| is_kept(set, it)) {
        let Some(id) = id(claim.labels()).filter(|id| !active.contains(id)) else { continue };
        match ending.get(id) {
            Some(pod) => unused.hand_over.push((claim, pod)),
            None => unused.delete.push(claim),
        }
    }
    unused
}

/// Returns the merge patch that makes the pod the owner of the claim, in place of the set. `None` if the pod has no
/// name or no UID.
#[must_use]
pub(crate) fn hand_over(set: &Owner, claim: &PersistentVolumeClaim, pod: &Pod) -> Option<Value> {
    let references = claim.metadata.owner_references.iter().flatten().filter(|it| it.uid != set.uid);
    let mut references = references.map(|it| json!(it)).collect::<Vec<_>>();
    references.push(json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name.as_ref()?, "uid": pod.metadata.uid.as_ref()?,
        "controller": true, "blockOwnerDeletion": true,
    }));
    Some(json!({"metadata": {
        "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "ownerReferences": references,
    }}))
}

/// Returns the identity in the labels of a pod or a claim.
pub(crate) fn id(labels: &BTreeMap<String, String>) -> Option<&str> {
    labels.get(INSTANCE_ID).map(String::as_str).filter(|id| !id.is_empty())
}

/// Returns true if the claim belongs to the set and is not being deleted.
fn is_kept(set: &Owner, claim: &PersistentVolumeClaim) -> bool {
    set.owns(claim) && claim.metadata.deletion_timestamp.is_none()
}

/// Returns true if the identity can be the end of a pod's name.
fn is_name(id: &str) -> bool {
    id.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
}
