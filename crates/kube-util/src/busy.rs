//! Busy pods: functions over [`CachedPod`] that several services share. The decisions are in [`podward_core::busy`].

use std::time::Duration;

use podward_core::busy::{BusyChecks, keep_cost};
use podward_core::keys::DELETE_OPERATION;
use podward_core::{NoRules, UnixNanos};

use crate::cached_pod::CachedPod;

/// Returns true if a deletion of `pod` has to wait because the pod is busy.
#[must_use]
pub fn holds_deletion(pod: &CachedPod, max_busy: Duration, now: UnixNanos) -> bool {
    BusyChecks::new(&pod.view(), max_busy, now, &NoRules).holds(DELETE_OPERATION).is_some()
}

/// Returns the annotations to write so that the deletion cost of `pod` corresponds to `is_busy`.
///
/// A ReplicaSet deletes pods with a low cost first. The list is empty if nothing changes.
#[must_use]
pub fn deletion_cost_changes(
    pod: &CachedPod,
    is_busy: bool,
    now: UnixNanos,
) -> Vec<(&'static str, Option<String>)> {
    let request = pod.deletion_request();
    keep_cost(is_busy && pod.is_chosen_by_cost(), &pod.cost(request.as_ref()), now)
}
