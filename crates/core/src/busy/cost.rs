//! The cost by which ReplicaSets choose pods, kept in step with work that must not be interrupted: idle pods go first.
//!
//! ReplicaSets delete pods with a lower [`POD_DELETION_COST`] first, of those that are equally ready
//! (kubernetes/pkg/controller/controller_utils.go, `ActivePodsWithRanks`). While a pod is busy it has the highest cost; what it had
//! before stands on the pod in [`IDLE_DELETION_COST`], written together with it, so that it comes back whoever restarts meanwhile.

use serde::{Deserialize, Serialize};

use crate::keys::{IDLE_DELETION_COST, POD_DELETION_COST};
use crate::time::UnixNanos;
use crate::wish::{CHEAPEST, Wish};

/// The highest cost there is.
pub const DEAREST: &str = "2147483647";

/// The annotation [`IDLE_DELETION_COST`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleCost {
    /// What the pod's cost was; empty when it had none.
    pub cost: String,
    /// Since when it has the highest one, in nanoseconds since the Unix epoch.
    pub since: i64,
}

impl IdleCost {
    /// Reads the annotation's text. `None` when it can't be read.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a pod carries of costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost<'a> {
    /// The annotation [`POD_DELETION_COST`].
    pub present: Option<&'a str>,
    /// The text of the annotation [`IDLE_DELETION_COST`].
    pub idle: Option<&'a str>,
    /// The wish to delete the pod. While it has set the cost itself that stays: the pod is to be the ReplicaSet's first choice.
    pub wish: Option<&'a Wish>,
}

/// Whether an owner of this kind chooses by cost which of its pods go.
#[must_use]
pub fn is_chosen_by_cost(owner_kind: &str) -> bool {
    matches!(owner_kind, "ReplicaSet" | "ReplicationController")
}

/// The annotations to write, if any, so that the cost of a pod that its workload chooses by cost is what it should be: `busy` says
/// whether the pod is (and whether its workload does choose so). A cost that somebody else sets while the pod is busy stays.
///
/// ```
/// use podward_core::UnixNanos;
/// use podward_core::busy::{Cost, DEAREST, keep_cost};
///
/// let changes = keep_cost(true, &Cost { present: Some("5"), ..Cost::default() }, UnixNanos(7));
/// let [(_, Some(dearest)), (_, Some(idle))] = changes.as_slice() else { panic!() };
/// assert_eq!(dearest, DEAREST);
/// let after = Cost { present: Some(dearest), idle: Some(idle), wish: None };
/// assert!(keep_cost(true, &after, UnixNanos(8)).is_empty());
/// let back = keep_cost(false, &after, UnixNanos(9));
/// assert_eq!(back[0].1.as_deref(), Some("5"));
/// ```
#[must_use]
pub fn keep_cost(busy: bool, cost: &Cost<'_>, now: UnixNanos) -> Vec<(&'static str, Option<String>)> {
    let is_wish_s =
        cost.present == Some(CHEAPEST) && cost.wish.is_some_and(|wish| wish.cost_before.is_some());
    if is_wish_s {
        return Vec::new();
    }
    match (busy, cost.idle) {
        (true, None) if cost.present != Some(DEAREST) => {
            let before = cost.present.unwrap_or_default().to_owned();
            let idle = IdleCost { cost: before, since: now.0 };
            vec![(POD_DELETION_COST, Some(DEAREST.to_owned())), (IDLE_DELETION_COST, Some(idle.text()))]
        }
        (false, Some(idle)) => {
            let before = IdleCost::parse(idle).map(|idle| idle.cost).filter(|cost| !cost.is_empty());
            let restored = (cost.present == Some(DEAREST)).then_some((POD_DELETION_COST, before));
            restored.into_iter().chain([(IDLE_DELETION_COST, None)]).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wish::DeletionKind;

    fn wish(cost_before: Option<&str>) -> Wish {
        let wish = Wish::new(DeletionKind::Delete, "jane", UnixNanos(1));
        Wish { cost_before: cost_before.map(ToOwned::to_owned), ..wish }
    }

    #[test]
    fn a_pod_without_a_cost_has_none_again() {
        let marked = keep_cost(true, &Cost::default(), UnixNanos(7));
        assert_eq!(marked[1], (IDLE_DELETION_COST, Some(r#"{"cost":"","since":7}"#.to_owned())));
        let after = Cost { present: Some(DEAREST), idle: marked[1].1.as_deref(), wish: None };
        assert_eq!(
            keep_cost(false, &after, UnixNanos(8)),
            [(POD_DELETION_COST, None), (IDLE_DELETION_COST, None)]
        );
    }

    #[test]
    fn a_cost_that_somebody_sets_meanwhile_stays() {
        let cost = Cost { present: Some("3"), idle: Some(r#"{"cost":"","since":7}"#), wish: None };
        assert!(keep_cost(true, &cost, UnixNanos(8)).is_empty());
        assert_eq!(keep_cost(false, &cost, UnixNanos(8)), [(IDLE_DELETION_COST, None)]);
    }

    #[test]
    fn what_a_wish_has_set_is_the_wish_s() {
        let wish = wish(Some(DEAREST));
        for idle in [None, Some(r#"{"cost":"5","since":7}"#)] {
            let cost = Cost { present: Some(CHEAPEST), idle, wish: Some(&wish) };
            for busy in [true, false] {
                assert!(keep_cost(busy, &cost, UnixNanos(8)).is_empty());
            }
        }
        // Taken back, it leaves what was there before it, and that is put right.
        let cost = Cost { present: Some(DEAREST), idle: Some(r#"{"cost":"5","since":7}"#), wish: None };
        assert_eq!(keep_cost(false, &cost, UnixNanos(8))[0], (POD_DELETION_COST, Some("5".to_owned())));
    }

    #[test]
    fn the_highest_cost_needs_no_mark_and_garbage_leaves_nothing_behind() {
        let own = Cost { present: Some(DEAREST), ..Cost::default() };
        assert!(keep_cost(true, &own, UnixNanos(8)).is_empty());
        assert!(keep_cost(false, &own, UnixNanos(8)).is_empty(), "it is the application's own");
        let garbage = Cost { present: Some(DEAREST), idle: Some("?"), wish: None };
        assert_eq!(
            keep_cost(false, &garbage, UnixNanos(8)),
            [(POD_DELETION_COST, None), (IDLE_DELETION_COST, None)]
        );
    }
}
