//! The deletion cost of busy pods, so that a ReplicaSet deletes idle pods first.
//!
//! Of equally ready pods, ReplicaSets delete those with a lower [`POD_DELETION_COST`] first
//! (kubernetes/pkg/controller/controller_utils.go, `ActivePodsWithRanks`). A busy pod has the highest cost. The
//! previous cost is stored in [`IDLE_DELETION_COST`] in the same write, so that it is restored after any restart.

use serde::{Deserialize, Serialize};

use crate::model::deletion_request::{DeletionRequest, LOWEST_COST};
use crate::model::keys::{IDLE_DELETION_COST, POD_DELETION_COST};
use crate::model::time::UnixNanos;
use crate::model::view::PodFacts;

/// The highest deletion cost.
pub const HIGHEST_COST: &str = "2147483647";

/// The annotation [`IDLE_DELETION_COST`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleCost {
    /// The previous cost of the pod; empty when it had none.
    pub cost: String,
    /// The time of the change to the highest cost, in nanoseconds since the Unix epoch.
    pub since: i64,
}

impl IdleCost {
    /// Reads the text of the annotation. Returns `None` when it cannot be read.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The annotations of a pod about its deletion cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeletionCost<'a> {
    /// The annotation [`POD_DELETION_COST`].
    pub present: Option<&'a str>,
    /// The text of the annotation [`IDLE_DELETION_COST`].
    pub idle: Option<&'a str>,
    /// The deletion request of the pod. When it has set the cost, the cost stays, so that the ReplicaSet deletes the
    /// pod first.
    pub request: Option<&'a DeletionRequest>,
}

impl<'a> DeletionCost<'a> {
    /// Returns what a pod with these facts stores. `request` is its deletion request.
    pub(crate) fn of(facts: &PodFacts<'a>, request: Option<&'a DeletionRequest>) -> Self {
        Self { present: facts.deletion_cost, idle: facts.idle_deletion_cost, request }
    }
}

/// Returns whether an owner of this kind chooses pods by cost.
#[must_use]
pub fn is_chosen_by_cost(owner_kind: &str) -> bool {
    matches!(owner_kind, "ReplicaSet" | "ReplicationController")
}

/// Returns the annotations to write so that the cost of the pod is correct. `busy` is true if the pod is busy and its
/// workload chooses pods by cost. A cost that another writer sets while the pod is busy stays.
///
/// ```
/// use podward_core::UnixNanos;
/// use podward_core::busy::{DeletionCost, HIGHEST_COST, keep_cost};
///
/// let changes = keep_cost(true, &DeletionCost { present: Some("5"), ..DeletionCost::default() }, UnixNanos(7));
/// let [(_, Some(dearest)), (_, Some(idle))] = changes.as_slice() else { panic!() };
/// assert_eq!(dearest, HIGHEST_COST);
/// let after = DeletionCost { present: Some(dearest), idle: Some(idle), request: None };
/// assert!(keep_cost(true, &after, UnixNanos(8)).is_empty());
/// let back = keep_cost(false, &after, UnixNanos(9));
/// assert_eq!(back[0].1.as_deref(), Some("5"));
/// ```
#[must_use]
pub fn keep_cost(busy: bool, cost: &DeletionCost<'_>, now: UnixNanos) -> Vec<(&'static str, Option<String>)> {
    let is_set_by_request = cost.present == Some(LOWEST_COST)
        && cost.request.is_some_and(|request| request.cost_before.is_some());
    if is_set_by_request {
        return Vec::new();
    }
    match (busy, cost.idle) {
        (true, None) if cost.present != Some(HIGHEST_COST) => {
            let before = cost.present.unwrap_or_default().to_owned();
            let idle = IdleCost { cost: before, since: now.0 };
            vec![(POD_DELETION_COST, Some(HIGHEST_COST.to_owned())), (IDLE_DELETION_COST, Some(idle.text()))]
        }
        (false, Some(idle)) => {
            let before = IdleCost::parse(idle).map(|idle| idle.cost).filter(|cost| !cost.is_empty());
            let restored = (cost.present == Some(HIGHEST_COST)).then_some((POD_DELETION_COST, before));
            restored.into_iter().chain([(IDLE_DELETION_COST, None)]).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the annotations to write so that the pod has the cost that it had before Podward changed it, because the pod
/// is busy or because its deletion was requested. A cost that another writer has set since then stays.
#[must_use]
pub fn restore_cost(cost: &DeletionCost<'_>) -> Vec<(&'static str, Option<String>)> {
    let request = cost.request.filter(|_| cost.present == Some(LOWEST_COST));
    let before = request.and_then(|request| request.cost_before.as_deref());
    // The pod may have been busy when the request set the cost.
    let present = before.map_or(cost.present, |before| Some(before).filter(|before| !before.is_empty()));
    let idle = DeletionCost { present, idle: cost.idle, request: None };
    let mut changes = keep_cost(false, &idle, UnixNanos::default());
    if present != cost.present && !changes.iter().any(|(key, _)| *key == POD_DELETION_COST) {
        changes.push((POD_DELETION_COST, present.map(ToOwned::to_owned)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::deletion_request::DeletionKind;

    fn request(cost_before: Option<&str>) -> DeletionRequest {
        let request = DeletionRequest::new(DeletionKind::Delete, "jane", UnixNanos(1));
        DeletionRequest { cost_before: cost_before.map(ToOwned::to_owned), ..request }
    }

    #[test]
    fn a_pod_without_a_cost_has_none_again() {
        let marked = keep_cost(true, &DeletionCost::default(), UnixNanos(7));
        assert_eq!(marked[1], (IDLE_DELETION_COST, Some(r#"{"cost":"","since":7}"#.to_owned())));
        let after = DeletionCost { present: Some(HIGHEST_COST), idle: marked[1].1.as_deref(), request: None };
        assert_eq!(
            keep_cost(false, &after, UnixNanos(8)),
            [(POD_DELETION_COST, None), (IDLE_DELETION_COST, None)]
        );
    }

    #[test]
    fn a_cost_that_somebody_sets_meanwhile_stays() {
        let cost = DeletionCost { present: Some("3"), idle: Some(r#"{"cost":"","since":7}"#), request: None };
        assert!(keep_cost(true, &cost, UnixNanos(8)).is_empty());
        assert_eq!(keep_cost(false, &cost, UnixNanos(8)), [(IDLE_DELETION_COST, None)]);
    }

    #[test]
    fn what_a_request_has_set_is_the_request_s() {
        let request = request(Some(HIGHEST_COST));
        for idle in [None, Some(r#"{"cost":"5","since":7}"#)] {
            let cost = DeletionCost { present: Some(LOWEST_COST), idle, request: Some(&request) };
            for busy in [true, false] {
                assert!(keep_cost(busy, &cost, UnixNanos(8)).is_empty());
            }
        }
        // A withdrawn request restores the cost before it, which is corrected here.
        let cost = DeletionCost {
            present: Some(HIGHEST_COST),
            idle: Some(r#"{"cost":"5","since":7}"#),
            request: None,
        };
        assert_eq!(keep_cost(false, &cost, UnixNanos(8))[0], (POD_DELETION_COST, Some("5".to_owned())));
    }

    #[test]
    fn the_cost_is_restored_through_both_changes() {
        let idle = Some(r#"{"cost":"5","since":7}"#);
        let restored = |present, idle, cost_before| {
            let request = request(cost_before);
            restore_cost(&DeletionCost { present, idle, request: Some(&request) })
        };
        let five = (POD_DELETION_COST, Some("5".to_owned()));
        let unmarked = (IDLE_DELETION_COST, None);
        assert_eq!(restored(Some(LOWEST_COST), None, Some("5")), std::slice::from_ref(&five));
        assert_eq!(restored(Some(LOWEST_COST), None, Some("")), [(POD_DELETION_COST, None)]);
        assert_eq!(restored(Some(LOWEST_COST), idle, Some(HIGHEST_COST)), [five.clone(), unmarked.clone()]);
        assert_eq!(restored(Some(HIGHEST_COST), idle, None), [five, unmarked]);
        assert_eq!(restored(Some(LOWEST_COST), None, None), [], "it is the application's own");
        assert_eq!(restored(Some("3"), None, Some("5")), [], "somebody has set it since");
        assert_eq!(restored(None, None, Some("5")), []);
    }

    #[test]
    fn the_highest_cost_needs_no_mark_and_garbage_leaves_nothing_behind() {
        let own = DeletionCost { present: Some(HIGHEST_COST), ..DeletionCost::default() };
        assert!(keep_cost(true, &own, UnixNanos(8)).is_empty());
        assert!(keep_cost(false, &own, UnixNanos(8)).is_empty(), "it is the application's own");
        let garbage = DeletionCost { present: Some(HIGHEST_COST), idle: Some("?"), request: None };
        assert_eq!(
            keep_cost(false, &garbage, UnixNanos(8)),
            [(POD_DELETION_COST, None), (IDLE_DELETION_COST, None)]
        );
    }
}
