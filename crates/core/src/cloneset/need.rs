//! What a set needs of its pods.

use super::draft::length;
use super::hook::is_confirmed;
use super::pod::SetPod;
use super::set::{SetSpec, UpdateKind};
use super::state::State;

/// Returns the number of pods that get the revision of the template.
pub(super) fn missing_updates(set: &SetSpec, pods: &[SetPod]) -> i64 {
    let updated = pods.iter().filter(|pod| pod.is_updated() && !pod.is_preparing_delete()).count();
    let can_update = |pod: &&SetPod| !pod.is_updated() && (recreates(set) || pod.revision.is_in_place());
    let possible = length(pods.iter().filter(can_update).count());
    missing(set, updated).clamp(0, possible)
}

/// Returns how many more pods have to get the revision of the template if `updated` have it.
pub(super) fn missing(set: &SetSpec, updated: usize) -> i64 {
    i64::from(set.replicas) - i64::from(set.partition()) - length(updated)
}

/// Returns true if a pod that cannot be changed in place is recreated.
pub(super) fn recreates(set: &SetSpec) -> bool {
    matches!(set.update, UpdateKind::Recreate | UpdateKind::InPlaceIfPossible)
}

/// Returns true if the `preNormal` hook has to confirm the pod before it is in use.
pub(super) fn is_unconfirmed(set: &SetSpec, pod: &SetPod) -> bool {
    let is_new = pod.unconfirmed || pod.state == Some(State::PreparingNormal);
    let hook = set.hooks().pre_normal.as_ref();
    is_new && !is_confirmed(hook, pod, State::PreparingNormal)
}
