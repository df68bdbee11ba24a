//! Admission: the patches of the mutating webhook, and the reviews of both webhooks.

mod cancels;
mod patches;

use std::collections::{BTreeMap, BTreeSet};

use crate::busy::{BusyClaim, reason_fault};
use crate::model::incomplete::incomplete_text;
use crate::model::keys::{AVAILABLE_CONDITIONS, CONTROL_LABEL, Key, Stage};
use crate::model::operations::Operations;
use crate::model::pod::Pod;
use crate::model::time::UnixNanos;
use crate::protocol::advance::advance;

use cancels::wrong_cancels;
pub use patches::{drops_deletion_request, on_create, on_update, without_managed_fields};

/// The user that makes a write.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// `userInfo.username`.
    pub username: &'a str,
    /// `userInfo.groups`.
    pub groups: &'a [String],
}

/// The treatment of untrusted writers and incomplete operations.
#[derive(Clone, Debug, Default)]
pub struct ReviewPolicy {
    /// True if writes are denied that otherwise only cause a warning.
    pub strict: bool,
    /// The names of users that may write the labels of Podward.
    pub trusted: Vec<String>,
}

impl ReviewPolicy {
    /// Returns true if `writer` may write the labels of Podward.
    #[must_use]
    pub fn trusts(&self, writer: &Writer<'_>) -> bool {
        self.trusted.iter().any(|trusted| trusted == writer.username)
    }
}

/// The review of a write. The write is allowed when there are no denials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// The reasons for which the write is denied.
    pub denials: Vec<String>,
    /// The warnings for the caller.
    pub warnings: Vec<String>,
}

impl Review {
    fn object(&mut self, policy: &ReviewPolicy, text: String) {
        if policy.strict {
            self.denials.push(text);
        } else {
            self.warnings.push(text);
        }
    }
}

/// Reviews the caller's own write before the mutating webhook adds to it: incomplete operations, and labels that only
/// Podward may write. `old` is `None` on CREATE.
#[must_use]
pub fn review_raw(old: Option<&Pod>, new: &Pod, writer: &Writer<'_>, policy: &ReviewPolicy) -> Review {
    let mut review = Review::default();
    if !concerns(old, new) {
        return review;
    }
    half_announcements(old, new, policy, &mut review);
    review.denials.extend(wrong_cancels(old, new));
    if !policy.trusts(writer) {
        let changed = changed_keys(&protected_labels(old), &protected_labels(Some(new)));
        object_to(&mut review, policy, writer, changed.iter().map(String::as_str));
    }
    if opted_in(old).is_some() && !new.view().is_controlled() {
        review.warnings.push(format!(
            "Podward no longer manages the pod: without {CONTROL_LABEL}=true its readiness gate and operations stay as they are now"
        ));
    }
    review
}

/// Reviews the result of a write in the validating webhook: the rules of the protocol, incomplete operations, and
/// labels that only Podward may write and that do not follow from the rest of the write. `old` is `None` on CREATE.
///
/// An error that the stored pod already has does not deny the write, if the stored pod has opted in.
///
/// ```
/// use podward_core::{Pod, ReviewPolicy, Writer, review};
/// use serde_json::json;
///
/// let pod = |labels| serde_json::from_value::<Pod>(json!({"metadata": {"labels": labels}})).unwrap();
/// let stored = pod(json!({"kusionstack.io/control": "true"}));
/// let forged = pod(json!({
///     "kusionstack.io/control": "true",
///     "podopslifecycle.kusionstack.io/service-available": "1700000000000000000",
/// }));
/// let writer = Writer { username: "jane", groups: &[] };
/// let lenient = review(Some(&stored), &forged, &writer, &ReviewPolicy::default());
/// assert!(lenient.denials.is_empty() && lenient.warnings[0].contains("only Podward writes"));
/// let strict = ReviewPolicy { strict: true, trusted: vec!["system:serviceaccount:podward:controller".to_owned()] };
/// assert_eq!(review(Some(&stored), &forged, &writer, &strict).denials.len(), 1);
/// ```
#[must_use]
pub fn review(old: Option<&Pod>, new: &Pod, writer: &Writer<'_>, policy: &ReviewPolicy) -> Review {
    let mut review = Review::default();
    if !concerns(old, new) {
        return review;
    }
    let reviewed = opted_in(old);
    let before: BTreeSet<String> = reviewed.map(violations).into_iter().flatten().collect();
    let fresh = violations(new).into_iter().filter(|violation| !before.contains(violation));
    review
        .denials
        .extend(fresh.map(|violation| format!("failed to validate PodOpsLifecycleWebhook, {violation}")));
    half_announcements(old, new, policy, &mut review);
    review.denials.extend(wrong_cancels(old, new));
    if !policy.trusts(writer) {
        let unearned = unearned_changes(old, new);
        object_to(&mut review, policy, writer, unearned.iter().map(String::as_str));
    }
    review
}

/// Returns the labels `operate/<id>` that an untrusted writer sets or changes and that do not follow from the rest of
/// the write. They are the permission to operate on the pod, which Podward gives after the drain. `old` is `None` on
/// CREATE.
#[must_use]
pub fn untrusted_permissions(
    old: Option<&Pod>,
    new: &Pod,
    writer: &Writer<'_>,
    policy: &ReviewPolicy,
) -> Vec<String> {
    if !concerns(old, new) || policy.trusts(writer) {
        return Vec::new();
    }
    let is_operate = |key: &str| matches!(Key::parse(key), Key::Stage(Stage::Operate, _));
    let is_set = |key: &str| new.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    unearned_changes(old, new).into_iter().filter(|key| is_operate(key) && is_set(key)).collect()
}

fn concerns(old: Option<&Pod>, new: &Pod) -> bool {
    new.view().is_controlled() || opted_in(old).is_some()
}

/// Returns the stored pod if it has opted in. A write that opts a pod in is reviewed as the creation of an opted-in pod.
fn opted_in(old: Option<&Pod>) -> Option<&Pod> {
    old.filter(|old| old.view().is_controlled())
}

/// Returns the violations of the rules of the reference's validating webhook.
fn violations(pod: &Pod) -> Vec<String> {
    let view = pod.view();
    let mut found = Vec::new();
    match view.expected_finalizers() {
        Ok(expected) => found.extend(expected.impossible_service().map(|consumer| {
            format!("annotation {AVAILABLE_CONDITIONS} expects the finalizer of {consumer:?}, but no Service can have this name")
        })),
        Err(error) => found.push(error.to_string()),
    }
    found.extend(BusyClaim::of(&view).fault());
    found.extend(view.facts.busy_reason.and_then(reason_fault));
    found.extend(view.labels.keys().filter(|key| Key::parse(key) == Key::Malformed).map(|key| {
        format!("invalid label {key}: after the prefix it needs one slash and an operation id (or, for a permission, a type)")
    }));
    let operations = Operations::parse(view.labels);
    for (id, operation) in operations.iter() {
        for (there, missing) in
            [(Stage::Operated, Stage::DoneOperationType), (Stage::DoneOperationType, Stage::Operated)]
        {
            if operation.has(there) && !operation.has(missing) {
                found.push(format!(
                    "not found label {}: it comes and goes with {}",
                    missing.key(id),
                    there.key(id)
                ));
            }
        }
    }
    let any_checked = operations.iter().any(|(_, operation)| operation.has(Stage::PreChecked));
    if any_checked == operations.permissions.is_empty() {
        let (there, missing) = if any_checked {
            ("pre-checked", "operation-permission")
        } else {
            ("operation-permission", "pre-checked")
        };
        found.push(format!(
            "not found the expected label prefixes: map[{missing}:{{}}], which {there} labels need"
        ));
    }
    found
}

/// Reports operations that this write leaves with only one of `operating/<id>` and `operation-type/<id>`.
fn half_announcements(old: Option<&Pod>, new: &Pod, policy: &ReviewPolicy, review: &mut Review) {
    let before = old.map(Pod::view);
    let stored = before.as_ref().map(|view| Operations::parse(view.labels)).unwrap_or_default();
    let view = new.view();
    for (id, operation) in Operations::parse(view.labels).iter() {
        let was_half = stored.get(id).is_some_and(|stored| stored.is_incomplete());
        let type_taken = operation.has(Stage::Operating)
            && operation.known_type().is_none()
            && stored.get(id).is_some_and(|stored| stored.known_type().is_some());
        let begun_in_half = operation.is_incomplete() && !was_half && !is_finish(&stored, id);
        if begun_in_half || type_taken {
            review.object(policy, incomplete_text(id, operation.has(Stage::Operating)));
        }
    }
}

/// Returns whether `id` was operating. A lone type is then what the stock clients leave when they finish.
fn is_finish(stored: &Operations<'_>, id: &str) -> bool {
    stored
        .get(id)
        .is_some_and(|operation| operation.has(Stage::Operating) && operation.known_type().is_some())
}

type Protected<'a> = BTreeMap<&'a str, &'a str>;

fn protected_labels(pod: Option<&Pod>) -> Protected<'_> {
    let labels = pod.and_then(|pod| pod.metadata.labels.as_ref()).into_iter().flatten();
    labels
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .filter(|(key, _)| Key::parse(key).is_protected())
        .collect()
}

fn changed_keys(stored: &Protected<'_>, written: &Protected<'_>) -> BTreeSet<String> {
    let keys: BTreeSet<&str> = stored.keys().chain(written.keys()).copied().collect();
    keys.into_iter().filter(|key| stored.get(key) != written.get(key)).map(ToOwned::to_owned).collect()
}

/// Returns the changed protected labels that do not follow from the rest of the write by [`advance`]. Of a pod that opts in,
/// all its protected labels count as changed, except for `preparing`, which only keeps it out of service ([`on_update`]).
fn unearned_changes(old: Option<&Pod>, new: &Pod) -> BTreeSet<String> {
    let opts_in = old.is_some() && opted_in(old).is_none();
    let old = opted_in(old);
    let (stored, written) = (protected_labels(old), protected_labels(Some(new)));
    let mut changed = changed_keys(&stored, &written);
    if changed.is_empty() {
        return changed;
    }
    let mut fair = new.clone();
    let labels = fair.metadata.labels.get_or_insert_default();
    labels.retain(|key, _| !Key::parse(key).is_protected());
    labels.extend(stored.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    labels.extend(
        vanished_ids(old, new).into_iter().map(|id| (Stage::UndoOperationType.key(&id), String::new())),
    );
    let before = old.map(Pod::view);
    let earned = advance(before.as_ref(), &fair.view(), UnixNanos::default());
    changed.retain(|key| {
        let is_there = written.contains_key(key.as_str());
        let is_harmless = opts_in && matches!(Key::parse(key), Key::Stage(Stage::Preparing, _));
        !is_harmless && if is_there { !earned.set.contains_key(key) } else { !earned.remove.contains(key) }
    });
    changed
}

/// Returns the ids whose labels are all gone. This is a cancel that is already applied (the undo label is removed in
/// the same write), and every operator may cancel.
fn vanished_ids(old: Option<&Pod>, new: &Pod) -> Vec<String> {
    let (before, after) = (old.map(Pod::view), new.view());
    let stored = before.as_ref().map(|view| Operations::parse(view.labels)).unwrap_or_default();
    let left = Operations::parse(after.labels);
    stored.iter().filter(|(id, _)| left.get(id).is_none()).map(|(id, _)| id.to_owned()).collect()
}

fn object_to<'k>(
    review: &mut Review,
    policy: &ReviewPolicy,
    writer: &Writer<'_>,
    keys: impl Iterator<Item = &'k str>,
) {
    let keys: Vec<&str> = keys.collect();
    if !keys.is_empty() {
        let text = format!(
            "only Podward writes {}; {} is not among its service accounts or trusted writers",
            keys.join(", "),
            writer.username
        );
        review.object(policy, text);
    }
}
