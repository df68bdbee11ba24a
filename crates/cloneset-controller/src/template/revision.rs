//! The revisions of a set: one for each template that it had.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use podward_core::cloneset::keys::CLAIMS_HASH;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::json::{canonical_text, normal_template};
use super::metadata::Metadata;
use super::owner::Owner;
use super::revision_hash::short_hash;
use super::safe_text::encode;

/// Label: the hash of a revision.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Annotation of sets that their revisions do not get: it contains the set.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const HASH_LENGTH: usize = 10;
const NAME_LIMIT: usize = 253;

/// What a new revision is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRevision<'a> {
    /// The set that owns it.
    pub(crate) set: &'a Owner,
    /// The annotations of the set.
    pub(crate) annotations: &'a BTreeMap<String, String>,
    /// The template of the set.
    pub(crate) template: &'a Value,
    /// The claim templates of the set.
    pub(crate) claim_templates: &'a [Value],
    /// `status.collisionCount`: the number of times that another revision had the name of a new one.
    pub(crate) collision_count: u32,
}

/// The revision of the template of a set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WantedRevision<'a> {
    /// It exists, and is the newest.
    Newest(&'a ControllerRevision),
    /// It exists, and becomes the newest with this number; see [`raise_patch`].
    Raise(&'a ControllerRevision, i64),
    /// It has to be created. If its name is taken, `collision_count` has to be raised.
    Create(Box<ControllerRevision>),
}

/// Returns the hash of a template. Templates that differ only in what means nothing have the same one.
#[must_use]
pub(crate) fn template_hash(template: &Value, collision_count: u32) -> String {
    let mut text = canonical_text(&normal_template(template));
    if collision_count > 0 {
        text.push_str(&collision_count.to_string());
    }
    hash(&text)
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    encode(number, HASH_LENGTH)
}

/// Returns the revision that the set needs, of those that it has.
///
/// # Errors
/// Returns a text for people if the labels of the template are no texts.
pub(crate) fn wanted_revision<'a, R: Borrow<ControllerRevision>>(
    revisions: &'a [R],
    new: &NewRevision<'_>,
) -> Result<WantedRevision<'a>, String> {
    let number = next_number(revisions);
    match find_equal(revisions, new.template) {
        Some(found) if found.revision.checked_add(1) == Some(number) => Ok(WantedRevision::Newest(found)),
        Some(found) if found.revision >= number => Ok(WantedRevision::Newest(found)),
        Some(found) => Ok(WantedRevision::Raise(found, number)),
        None => Ok(WantedRevision::Create(Box::new(new_revision(new, number)?))),
    }
}

/// Returns a new revision.
///
/// # Errors
/// Returns a text for people if the labels of the template are no texts.
pub(crate) fn new_revision(new: &NewRevision<'_>, number: i64) -> Result<ControllerRevision, String> {
    let hash = template_hash(new.template, new.collision_count);
    let mut labels = Metadata::of(new.template)?.labels;
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let mut annotations = new.annotations.clone();
    annotations.remove(LAST_APPLIED);
    annotations.insert(CLAIMS_HASH.to_owned(), claims_hash(new.claim_templates));
    let mut template = new.template.clone();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), "replace".into());
    }
    Ok(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(&new.set.name, &hash)),
            namespace: Some(new.set.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![new.set.reference()]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({"spec": {"template": template}}))),
        revision: number,
    })
}

fn name(set: &str, hash: &str) -> String {
    let limit = NAME_LIMIT.saturating_sub(hash.len() + 1);
    let prefix: String = set.chars().take(limit).collect();
    format!("{}-{hash}", prefix.trim_end_matches(['.', '-']))
}

/// Returns the merge patch that makes the revision the newest one, with this number.
#[must_use]
pub(crate) fn raise_patch(revision: &ControllerRevision, number: i64, claim_templates: &[Value]) -> Value {
    json!({
        "metadata": {
            "uid": revision.metadata.uid, "resourceVersion": revision.metadata.resource_version,
            "annotations": {CLAIMS_HASH: claims_hash(claim_templates)},
        },
        "revision": number,
    })
}

/// Returns the template of the revision. `None` if it has none.
#[must_use]
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<Value> {
    let template: &Map<String, Value> = revision.data.as_ref()?.0.pointer("/spec/template")?.as_object()?;
    let fields = template.iter().filter(|(key, _)| *key != "$patch");
    Some(Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

/// Returns the newest revision with the template.
#[must_use]
pub(crate) fn find_equal<'a, R: Borrow<ControllerRevision>>(
    revisions: &'a [R],
    template: &Value,
) -> Option<&'a ControllerRevision> {
    let wanted = normal_template(template);
    let has_template =
        |it: &&ControllerRevision| template_of(it).is_some_and(|it| normal_template(&it) == wanted);
    revisions.iter().map(Borrow::borrow).filter(has_template).max_by_key(|it| age(it))
}

/// Returns the number of the next revision.
#[must_use]
pub(crate) fn next_number<R: Borrow<ControllerRevision>>(revisions: &[R]) -> i64 {
    revisions.iter().map(|it| it.borrow().revision).max().unwrap_or_default().saturating_add(1).max(1)
}

/// Returns the revisions that are deleted: of those that are not in use, all but the `limit` newest. `in_use` are the
/// names or hashes of the revisions of the set and of its pods.
#[must_use]
pub(crate) fn to_delete<'a, 'b, R: Borrow<ControllerRevision>>(
    revisions: &'a [R],
    in_use: impl IntoIterator<Item = &'b str>,
    limit: usize,
) -> Vec<&'a ControllerRevision> {
    let in_use: BTreeSet<&str> = in_use.into_iter().map(short_hash).collect();
    let is_used = |it: &ControllerRevision| {
        it.metadata.name.as_deref().is_some_and(|name| in_use.contains(short_hash(name)))
    };
    let mut unused: Vec<_> = revisions.iter().map(Borrow::borrow).filter(|it| !is_used(it)).collect();
    unused.sort_by_key(|it| Reverse(age(it)));
    unused.into_iter().skip(limit).collect()
}

fn age(revision: &ControllerRevision) -> impl Ord + use<> {
    let created = revision.metadata.creation_timestamp.as_ref().map(|it| it.0);
    (revision.revision, created, revision.metadata.name.clone())
}

/// Returns true if the claim templates of the set were others with the old revision than with the new one: its pods
/// cannot be changed in place. False if it is not known, as for revisions of OpenKruise.
#[must_use]
pub(crate) fn claims_changed(old: &ControllerRevision, new: &ControllerRevision) -> bool {
    match (old.annotations().get(CLAIMS_HASH), new.annotations().get(CLAIMS_HASH)) {
        (Some(old), Some(new)) => old != new,
        _ => false,
    }
}

/// Returns the hash of names and specs of the claim templates. Their order does not matter.
fn claims_hash(templates: &[Value]) -> String {
    let text = |it: &Value| {
        let name = it.get("metadata").and_then(|it| it.get("name"));
        canonical_text(&normal_template(&json!({"name": name, "spec": it.get("spec")})))
    };
    let mut texts: Vec<String> = templates.iter().map(text).collect();
    texts.sort();
    hash(&texts.concat())
}
