//! The patches of the mutating webhook.

use json_patch::{Patch, PatchOperation};
use serde_json::json;

use crate::busy::{BusyClaim, DeletionCost, is_chosen_by_cost, keep_cost, restore_cost};
use crate::model::expected_finalizers::with_consumers;
use crate::model::hook_keys::is_hook_finalizer;
use crate::model::keys::{
    AVAILABLE_CONDITIONS, BUSY_LIMITS, CONTROL_LABEL, CONTROL_VALUE, DELETE_OPERATION, DELETE_TIMESTAMP,
    DELETION_REQUEST, EVIDENCE, HOOK_REQUESTS, PREPARING_TO_DELETE, RESULT_REFUSED, SERVICE_READY_GATE,
    Stage, TO_DELETE, TO_DELETE_BY,
};
use crate::model::label_changes::{LabelChanges, add, remove, set_annotation};
use crate::model::operations::{Operation, Operations};
use crate::model::pod::Pod;
use crate::model::time::UnixNanos;
use crate::model::view::PodView;
use crate::protocol::advance::{advance, settle};
use crate::protocol::preparing_to_delete::is_left_over;

/// Returns the patch for a new pod. It adds the readiness gate, the hooks `consumers` (names, see
/// [`Hook::is_consumer`](crate::hooks::Hook::is_consumer)) among the expected finalizers and, with `inject`, the opt-in
/// label. It removes labels, records in annotations, and finalizers that only Podward may write: a new pod may be a copy
/// of another pod's manifest.
///
/// An annotation of expected finalizers that cannot be read does not change. The review denies it.
///
/// A pod that has not opted in and is not to be injected gets an empty patch. A pod with `kusionstack.io/control:
/// "false"` stays out even with `inject`.
///
/// ```
/// use podward_core::{Pod, UnixNanos, on_create};
/// use serde_json::json;
///
/// let document = json!({"metadata": {"name": "web-0"}, "spec": {"containers": []}});
/// let pod: Pod = serde_json::from_value(document.clone()).unwrap();
/// let mut patched = document;
/// json_patch::patch(&mut patched, &on_create(&pod, true, &["mesh"], UnixNanos(0))).unwrap();
/// assert_eq!(patched["metadata"]["labels"]["kusionstack.io/control"], "true");
/// let expected = patched["metadata"]["annotations"]["pod.kusionstack.io/available-conditions"].as_str().unwrap();
/// assert!(expected.contains("LifecycleHook//mesh"));
/// assert_eq!(patched["spec"]["readinessGates"][0]["conditionType"], "pod.kusionstack.io/service-ready");
/// ```
#[must_use]
pub fn on_create(pod: &Pod, inject: bool, consumers: &[&str], now: UnixNanos) -> Patch {
    if !will_be_controlled(pod, inject) {
        return Patch(Vec::new());
    }
    let opts_in = !pod.view().is_controlled();
    let mut changes = clean_start(pod, |_| false, now);
    if opts_in {
        changes.set.insert(CONTROL_LABEL.to_owned(), CONTROL_VALUE.to_owned());
    }
    let mut operations = changes.to_json_patch(pod.metadata.labels.is_some());
    operations.extend(gate_patch(pod));
    operations.extend(expected_patch(pod, consumers));
    operations.extend(records_patch(pod));
    operations.extend(finalizers_patch(pod));
    Patch(operations)
}

/// Returns `patch`, the answer to the CREATE of `pod`, with the removal of `metadata.managedFields`. The API server then
/// never tracks the fields of the pod, which saves it much of the work of each write. A pod that is not opted in, or that
/// somebody has applied (server-side apply), keeps them.
#[must_use]
pub fn without_managed_fields(mut patch: Patch, pod: &Pod, inject: bool) -> Patch {
    let managers = pod.metadata.managed_fields.as_deref().unwrap_or_default();
    let is_applied = managers.iter().any(|manager| manager.operation == "Apply");
    if will_be_controlled(pod, inject) && !managers.is_empty() && !is_applied {
        patch.0.push(remove(&["metadata", "managedFields"]));
    }
    patch
}

/// Returns whether a new pod is opted in, or opts in because of its namespace.
fn will_be_controlled(pod: &Pod, inject: bool) -> bool {
    let has_label = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(CONTROL_LABEL));
    pod.view().is_controlled() || (inject && !has_label)
}

/// Removes what Podward has recorded about another pod: times of requests to hooks, evidence, refusals and limits.
fn records_patch(pod: &Pod) -> impl Iterator<Item = PatchOperation> {
    let annotations = &pod.metadata.annotations;
    let records = [
        (HOOK_REQUESTS, annotations.hook_requests.is_some()),
        (EVIDENCE, annotations.evidence.is_some()),
        (RESULT_REFUSED, annotations.has_result_refused),
        (BUSY_LIMITS, annotations.busy_limits.is_some()),
    ];
    records
        .into_iter()
        .filter(|(_, is_there)| *is_there)
        .map(|(key, _)| remove(&["metadata", "annotations", key]))
}

fn expected_patch(pod: &Pod, consumers: &[&str]) -> Vec<PatchOperation> {
    let annotations = &pod.metadata.annotations;
    let mut operations = Vec::new();
    match with_consumers(annotations.available_conditions.as_deref(), consumers.iter().copied()) {
        Ok(Some(Some(text))) => {
            set_annotation(&mut operations, annotations.present, AVAILABLE_CONDITIONS, text);
        }
        Ok(Some(None)) => operations.push(remove(&["metadata", "annotations", AVAILABLE_CONDITIONS])),
        Ok(None) | Err(_) => {}
    }
    operations
}

/// Removes finalizers of hooks from the last to the first, so that the indexes stay right.
fn finalizers_patch(pod: &Pod) -> impl Iterator<Item = PatchOperation> {
    let finalizers = pod.metadata.finalizers.iter().flatten().enumerate();
    let ours: Vec<usize> =
        finalizers.filter(|(_, name)| is_hook_finalizer(name)).map(|(place, _)| place).collect();
    ours.into_iter().rev().map(|place| remove(&["metadata", "finalizers", &place.to_string()]))
}

/// Removes the labels that only Podward may write. An operation that `stays_out` keeps the pod out of service while it is
/// checked.
fn clean_start(pod: &Pod, stays_out: fn(&Operation<'_>) -> bool, now: UnixNanos) -> LabelChanges {
    let view = pod.view();
    let before = Operations::parse(view.labels);
    let mut operations = before.clone();
    for operation in operations.by_id.values_mut() {
        let stays_out = stays_out(operation);
        if !operation.has(Stage::Operating) && operation.has_ours() {
            // Its operator has finished. A type alone would look like a new announcement.
            *operation = Operation::default();
        }
        operation.take(&Stage::OURS);
        if stays_out {
            operation.put(Stage::Preparing);
        }
    }
    operations.permissions.clear();
    operations.service_available = false;
    settle(&mut operations, &Operations::default(), &view);
    before.changes_to(&operations, now)
}

fn gate_patch(pod: &Pod) -> Option<PatchOperation> {
    let gate = json!({"conditionType": SERVICE_READY_GATE});
    match &pod.spec.readiness_gates {
        _ if pod.has_gate() => None,
        Some(_) => Some(add(&["spec", "readinessGates", "-"], gate)),
        None => Some(add(&["spec", "readinessGates"], json!([gate]))),
    }
}

/// Returns the patch for a write to a pod or its status: the changes of [`advance`] and of the deletion cost
/// ([`crate::busy::keep_cost`]), within the caller's write. A write that removes the opt-in also removes the finalizers
/// of hooks and restores the deletion cost, because nothing would do it later.
///
/// A write that opts a pod in removes the labels that only Podward may write: anybody may have written them, so operations
/// are checked from the beginning. A pod that an operation has taken out of service stays out, and hooks are asked again
/// to drain it: the write also removes their evidence. It also removes a deletion request that the pod had before.
#[must_use]
pub fn on_update(old: Option<&Pod>, new: &Pod, now: UnixNanos) -> Patch {
    let stored = old.map(Pod::view);
    let was_controlled = stored.as_ref().map(PodView::is_controlled);
    let changes = match (old, was_controlled, new.view().is_controlled()) {
        (_, Some(true), false) => {
            return Patch(finalizers_patch(new).chain(restored_cost_patch(new)).collect());
        }
        (Some(old), Some(false), true) => return opt_in_patch(old, new.clone(), now),
        _ => advance(stored.as_ref(), &new.view(), now),
    };
    let mut operations = changes.to_json_patch(new.metadata.labels.is_some());
    operations.extend(cost_patch(new, now));
    Patch(operations)
}

/// Returns whether a write opts a pod in that was to be deleted before, so that [`on_update`] removes that.
#[must_use]
pub fn drops_deletion_request(old: &Pod, new: &Pod) -> bool {
    let opts_in = !old.view().is_controlled() && new.view().is_controlled();
    opts_in && drop_earlier_request(old, &mut new.clone()).0.iter().any(|label| label == TO_DELETE)
}

fn opt_in_patch(old: &Pod, mut new: Pod, now: UnixNanos) -> Patch {
    let (labels, annotations) = drop_earlier_request(old, &mut new);
    let mut changes = clean_start(&new, is_out, now);
    changes.remove.extend(labels);
    let mut operations = changes.to_json_patch(true);
    operations.extend(annotations);
    if new.metadata.annotations.evidence.is_some() {
        // Hooks may have added the pod since: labels that hold it out of service may be of anybody.
        operations.push(remove(&["metadata", "annotations", EVIDENCE]));
    }
    operations.extend(cost_patch(&new, now));
    Patch(operations)
}

/// Removes the deletion request that `old` has from `new`, which opts in. Returns the removed labels, and the patch of the
/// annotations. Before the opt-in nobody checks who sets them and which user they name.
fn drop_earlier_request(old: &Pod, new: &mut Pod) -> (Vec<String>, Vec<PatchOperation>) {
    let (before, after) = (&old.metadata.annotations, &mut new.metadata.annotations);
    let mut annotations = Vec::new();
    for (key, before, after) in [
        (TO_DELETE_BY, &before.to_delete_by, &mut after.to_delete_by),
        (DELETION_REQUEST, &before.deletion_request, &mut after.deletion_request),
        (DELETE_TIMESTAMP, &before.delete_timestamp, &mut after.delete_timestamp),
    ] {
        if after.is_some() && after == before {
            *after = None;
            annotations.push(remove(&["metadata", "annotations", key]));
        }
    }
    let labels = new.metadata.labels.get_or_insert_default();
    let mut gone = Vec::new();
    if labels.get(TO_DELETE).is_some_and(|value| old.view().labels.get(TO_DELETE) == Some(value)) {
        gone.push(TO_DELETE.to_owned());
    }
    if gone.is_empty() && annotations.is_empty() {
        return (gone, annotations);
    }
    // Without its request, nobody would finish or cancel the operation.
    gone.extend(Stage::ALL.map(|stage| stage.key(DELETE_OPERATION)));
    gone.retain(|key| labels.remove(key).is_some());
    if is_left_over(labels, &Operations::parse(labels)) {
        gone.push(PREPARING_TO_DELETE.to_owned());
    }
    (gone, annotations)
}

fn is_out(operation: &Operation<'_>) -> bool {
    operation.has(Stage::Operating) && operation.has_any(&[Stage::Preparing, Stage::Operate])
}

/// Updates the deletion cost of a busy pod within any write.
fn cost_patch(pod: &Pod, now: UnixNanos) -> Vec<PatchOperation> {
    let view = pod.view();
    if !view.is_controlled() || view.terminating {
        return Vec::new();
    }
    let request = pod.deletion_request();
    let is_busy = pod.controller().is_some_and(|owner| is_chosen_by_cost(&owner.kind))
        && BusyClaim::of(&view).at(now).is_some();
    annotations_patch(keep_cost(is_busy, &DeletionCost::of(&view.facts, request.as_ref()), now))
}

/// Restores the deletion cost that Podward has changed.
fn restored_cost_patch(pod: &Pod) -> Vec<PatchOperation> {
    let view = pod.view();
    if view.terminating {
        return Vec::new();
    }
    let request = pod.deletion_request();
    annotations_patch(restore_cost(&DeletionCost::of(&view.facts, request.as_ref())))
}

/// Writes or removes annotations of a pod that has annotations.
fn annotations_patch(changes: Vec<(&'static str, Option<String>)>) -> Vec<PatchOperation> {
    let patched = changes.into_iter().map(|(key, text)| {
        let path = ["metadata", "annotations", key];
        text.map_or_else(|| remove(&path), |text| add(&path, text.into()))
    });
    patched.collect()
}
