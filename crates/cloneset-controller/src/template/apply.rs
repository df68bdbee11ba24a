//! Patches that change a pod to another revision while it runs.

mod batch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use podward_core::cloneset::keys::{UPDATE_GRACE, UPDATE_STATE};
use serde_json::Value;

use super::in_place_change::InPlaceChange;
use super::pending_update::PendingUpdate;
use super::pod_patch::{PodPatch, resize_patch};
use super::replaced::is_replaced;
use super::resized;
use super::revision_hash::revision_labels;
use super::update_state::{ContainerBatch, LastStatus, UpdateState};
use crate::pod::Pod;

/// An update of a pod to another revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update<'a> {
    /// The name of the revision.
    pub(crate) revision: &'a str,
    /// The time.
    pub(crate) now: Timestamp,
    /// The seconds in which the containers stay as they are, while the pod is already not Ready.
    pub(crate) grace_seconds: u32,
}

/// The writes of one step, in this order. If the second one is lost, the step is repeated from the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patches {
    /// The strategic merge patch of the subresource `resize`.
    pub(crate) resize: Option<Value>,
    /// The patch of the pod. The caller adds the label of the state.
    pub(crate) pod: PodPatch,
}

/// Returns the first writes that bring the pod to the revision: they change the containers of the highest priority, or
/// begin the grace period. What is left of an update that has not ended is a part of this one. [`next`] returns the
/// writes that follow.
///
/// # Errors
/// Returns a text for people if the pod does not have a container that changes: it has to be recreated.
pub(crate) fn update(pod: &Pod, change: InPlaceChange, update: Update<'_>) -> Result<Patches, String> {
    // The new update replaces a state that nobody can read.
    let last = UpdateState::of(pod).ok().flatten().unwrap_or_default();
    let change = waiting(pod, &last).then(change);
    // The resize may have been written, and the write after it not.
    let resizes = !change.resources.is_empty();
    let change = change.without_stored(pod);
    let unfinished = unfinished(pod, &last);
    let mut state = UpdateState {
        revision: update.revision.to_owned(),
        update_timestamp: Some(update.now),
        update_images: last.update_images && !unfinished.is_empty(),
        update_env_from_metadata: last.update_env_from_metadata && !unfinished.is_empty(),
        update_resources: resizes || last.update_resources && resized::missing(pod).is_some(),
        last_container_statuses: unfinished,
        ..UpdateState::default()
    };
    let mut patches = if update.grace_seconds > 0 && !change.containers().is_empty() {
        check(pod, &change)?;
        let pending = PendingUpdate::new(update.revision, change, update.grace_seconds);
        let mut patch = PodPatch::of(pod);
        patch.annotations.insert(UPDATE_GRACE.to_owned(), Some(text(&pending)?));
        patch.annotations.insert(UPDATE_STATE.to_owned(), Some(text(&state)?));
        Patches { resize: None, pod: patch }
    } else {
        change_batch(pod, &mut state, change, update.now)?
    };
    for (key, value) in revision_labels(update.revision) {
        patches.pod.set_label(pod, key, value);
    }
    Ok(patches)
}

/// Returns the next writes of the update of the pod, after [`progress`](super::progress) has reported that they can be
/// made: they end the grace period, or change the next containers. `None` if the update waits or has no next step.
///
/// # Errors
/// Returns a text for people if an annotation cannot be read, or the pod does not have a container that changes.
pub(crate) fn next(pod: &Pod, now: Timestamp) -> Result<Option<Patches>, String> {
    let state = UpdateState::of(pod)?;
    let Some(pending) = PendingUpdate::of(pod)? else {
        let Some(mut state) = state else { return Ok(None) };
        let waiting = state.waiting();
        if waiting.is_empty() {
            return Ok(None);
        }
        return change_batch(pod, &mut state, waiting.without_stored(pod), now).map(Some);
    };
    let mut state = state.unwrap_or_else(|| UpdateState {
        revision: pending.revision.clone(),
        update_timestamp: Some(now),
        ..UpdateState::default()
    });
    if pending.is_void(pod) {
        let mut patch = PodPatch::of(pod);
        patch.annotations.insert(UPDATE_GRACE.to_owned(), None);
        return Ok(Some(Patches { resize: None, pod: patch }));
    }
    if pending.end(&state).is_some_and(|end| now < end) {
        return Ok(None);
    }
    let change = pending.change()?.without_stored(pod);
    change_batch(pod, &mut state, change, now).map(Some)
}

/// Returns what an update that has not ended would still change.
fn waiting(pod: &Pod, state: &UpdateState) -> InPlaceChange {
    let pending = PendingUpdate::of(pod).ok().flatten().and_then(|it| it.change().ok());
    pending.unwrap_or_else(|| state.waiting())
}

/// Returns the containers of the last update that the kubelet has not replaced.
fn unfinished(pod: &Pod, last: &UpdateState) -> BTreeMap<String, LastStatus> {
    let statuses = last.last_container_statuses.iter();
    let unfinished = statuses.filter(|(name, it)| !is_replaced(pod, last, name, it));
    unfinished.map(|(name, it)| (name.clone(), it.clone())).collect()
}

/// Returns the writes that change the containers of the highest priority, and store the others in the state.
fn change_batch(
    pod: &Pod,
    state: &mut UpdateState,
    change: InPlaceChange,
    now: Timestamp,
) -> Result<Patches, String> {
    check(pod, &change)?;
    let batch = batch::split(pod, change);
    let mut patch = PodPatch::of(pod);
    if pod.annotations().contains_key(UPDATE_GRACE) {
        patch.annotations.insert(UPDATE_GRACE.to_owned(), None);
    }
    state.update_images |= !batch.now.images.is_empty() || !batch.next.images.is_empty();
    state.update_env_from_metadata |= !batch.now.env.is_empty() || !batch.next.env.is_empty();
    state.update_resources |= !batch.now.resources.is_empty() || !batch.next.resources.is_empty();
    for name in &batch.containers {
        if batch.now.images.contains_key(name) || batch.now.env.contains_key(name) {
            remember(pod, state, name, batch.now.images.get(name));
        }
    }
    state.wait_with(batch.next, batch.containers.clone());
    if !batch.containers.is_empty() {
        state
            .container_batches_record
            .push(ContainerBatch { timestamp: Some(now), containers: batch.containers });
    }
    let resize = resize_patch(pod, &batch.now.resources);
    for metadata in batch.now.env.into_values() {
        patch.labels.extend(metadata.labels.into_iter().map(|(key, value)| (key, Some(value))));
        patch.annotations.extend(metadata.annotations.into_iter().map(|(key, value)| (key, Some(value))));
    }
    patch.labels.extend(batch.now.labels);
    patch.annotations.extend(batch.now.annotations);
    patch.finalizers = batch.now.finalizers;
    patch.images = batch.now.images;
    patch.annotations.insert(UPDATE_STATE.to_owned(), Some(text(state)?));
    Ok(Patches { resize, pod: patch })
}

/// Stores what runs in the container that gets this image, or keeps its own.
fn remember(pod: &Pod, state: &mut UpdateState, name: &str, image: Option<&String>) {
    let status = pod.container_status(name);
    let is_scheduled = pod.node_name().is_some();
    if status.is_none() && !is_scheduled {
        // No kubelet knows the pod: its containers start as they are now.
        return;
    }
    let container_id = status.and_then(|it| it.container_id.clone()).unwrap_or_default();
    let unfinished =
        state.last_container_statuses.get(name).filter(|last| !is_replaced(pod, state, name, last));
    let last = match unfinished {
        // The kubelet may see only the sum of both changes. If that is none, it does not replace the container.
        Some(last) => {
            let is_back = image.is_some() && image == last.image.as_ref() && !state.update_env_from_metadata;
            LastStatus { container_id: (!is_back).then_some(container_id), ..last.clone() }
        }
        None => LastStatus {
            image_id: status.map(|it| it.image_id.clone()).unwrap_or_default(),
            container_id: Some(container_id),
            image: pod.container(name).and_then(|it| it.image.clone()),
        },
    };
    state.last_container_statuses.insert(name.to_owned(), last);
}

/// Checks that the pod has the containers.
fn check(pod: &Pod, change: &InPlaceChange) -> Result<(), String> {
    match change.containers().into_iter().find(|name| pod.container(name).is_none()) {
        Some(name) => Err(format!("the pod has no container {name}, so it has to be recreated")),
        None => Ok(()),
    }
}

fn text(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(value)
        .map_err(|error| format!("the state of the update cannot be written: {error}"))
}
