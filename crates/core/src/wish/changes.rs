//! What is written to record a wish, to take it back, and to put it off.

use std::collections::BTreeMap;

use crate::keys::{
    DELETE_OPERATION, DELETE_TIMESTAMP, DELETE_TYPE, DELETION_WISH, POD_DELETION_COST, PREPARING_TO_DELETE,
    Stage, TO_DELETE,
};
use crate::operations::Operations;
use crate::patch::LabelChanges;
use crate::time::UnixNanos;

use super::{Carried, Wish};

/// The lowest cost there is: ReplicaSets choose this pod first, so that the first choice stays the choice.
pub(crate) const CHEAPEST: &str = "-2147483648";

/// Labels and annotations to write, in one write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Of labels.
    pub labels: LabelChanges,
    /// Annotations: key to new text, or `None` where it goes.
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

impl Changes {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    fn set(&mut self, key: &str, value: &str) {
        self.labels.set.insert(key.to_owned(), value.to_owned());
    }
}

/// Records `wish` on a pod that carries none, and begins the operation, so that the first write of a deletion is all that is needed
/// to start it. `prefer` also makes the pod the one that a ReplicaSet deletes first.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::keys::{DELETION_WISH, Stage, TO_DELETE};
/// use podward_core::wish::{Carried, DeletionKind, Intent, Wish, intent, record};
/// use podward_core::UnixNanos;
///
/// let mut labels = BTreeMap::new();
/// let pod = Carried { labels: &labels, wish: None, delete_timestamp: None, deletion_cost: None };
/// let changes = record(&pod, Wish::new(DeletionKind::Delete, "jane", UnixNanos(7)), false);
/// assert!(changes.annotations[DELETION_WISH].as_ref().unwrap().contains("jane"));
///
/// let wish = Wish::parse(changes.annotations[DELETION_WISH].as_ref().unwrap()).unwrap();
/// changes.labels.apply(&mut labels);
/// assert_eq!(labels[TO_DELETE], "7");
/// assert!(labels.contains_key(&Stage::Operating.key("pod-delete")));
/// let pod = Carried { labels: &labels, wish: Some(&wish), delete_timestamp: Some("7"), deletion_cost: None };
/// assert_eq!(intent(&pod), Intent::Underway);
/// ```
#[must_use]
pub fn record(pod: &Carried<'_>, mut wish: Wish, prefer: bool) -> Changes {
    let at = UnixNanos(wish.requested_at);
    let mut changes = begin(pod, at);
    if !pod.labels.contains_key(TO_DELETE) {
        changes.set(TO_DELETE, &at.to_string());
    }
    // The same value as the label's says later that both are of this wish.
    let stamp = pod.labels.get(TO_DELETE).cloned().unwrap_or_else(|| at.to_string());
    changes.annotations.insert(DELETE_TIMESTAMP, Some(stamp));
    if prefer && pod.deletion_cost != Some(CHEAPEST) {
        wish.cost_before = Some(pod.deletion_cost.unwrap_or_default().to_owned());
        changes.annotations.insert(POD_DELETION_COST, Some(CHEAPEST.to_owned()));
    }
    changes.annotations.insert(DELETION_WISH, Some(wish.to_text()));
    changes
}

/// Writes `wish` over the one that stands on the pod. What else belongs to it stays.
#[must_use]
pub fn raise(wish: &Wish) -> Changes {
    let annotations = BTreeMap::from([(DELETION_WISH, Some(wish.to_text()))]);
    Changes { labels: LabelChanges::default(), annotations }
}

/// Begins the operation of a wish.
#[must_use]
pub fn begin(pod: &Carried<'_>, now: UnixNanos) -> Changes {
    let mut changes = Changes::default();
    let operating = Stage::Operating.key(DELETE_OPERATION);
    if !pod.labels.contains_key(&operating) {
        changes.set(&operating, &now.to_string());
    }
    let type_key = Stage::OperationType.key(DELETE_OPERATION);
    if pod.labels.get(&type_key).map(String::as_str) != Some(DELETE_TYPE) {
        changes.set(&type_key, DELETE_TYPE);
    }
    if !pod.labels.contains_key(PREPARING_TO_DELETE) {
        changes.set(PREPARING_TO_DELETE, &now.to_string());
    }
    changes
}

/// Takes the wish back: the operation is undone, and nothing of the wish is left.
///
/// The operation goes by the label that undoes it, which the engine carries out in the same write ([`crate::advance`] in the
/// mutating webhook, [`crate::plan`] in the controller).
#[must_use]
pub fn cancel(pod: &Carried<'_>) -> Changes {
    let mut changes = undo(pod);
    let gone = [TO_DELETE, PREPARING_TO_DELETE].into_iter().filter(|key| pod.labels.contains_key(*key));
    changes.labels.remove.extend(gone.map(ToOwned::to_owned));
    if pod.delete_timestamp.is_some() {
        changes.annotations.insert(DELETE_TIMESTAMP, None);
    }
    // Also one that can't be read.
    changes.annotations.insert(DELETION_WISH, None);
    let before = pod.wish.and_then(|wish| wish.cost_before.as_ref());
    if let Some(before) = before.filter(|_| pod.deletion_cost == Some(CHEAPEST)) {
        let restored = (!before.is_empty()).then(|| before.clone());
        changes.annotations.insert(POD_DELETION_COST, restored);
    }
    changes
}

/// Undoes the operation and keeps the wish, which begins again at `until`.
#[must_use]
pub fn put_off(pod: &Carried<'_>, wish: &Wish, until: UnixNanos) -> Changes {
    let mut changes = undo(pod);
    let wish = Wish {
        not_before: Some(until.0),
        times_put_off: wish.times_put_off.saturating_add(1),
        reserved_at: None,
        ..wish.clone()
    };
    changes.annotations.insert(DELETION_WISH, Some(wish.to_text()));
    changes
}

fn undo(pod: &Carried<'_>) -> Changes {
    let mut changes = Changes::default();
    let has_any = |stages: &[Stage]| {
        Operations::parse(pod.labels).get(DELETE_OPERATION).is_some_and(|operation| operation.has_any(stages))
    };
    if has_any(&Stage::ALL) && !has_any(&[Stage::UndoOperationType]) {
        changes.set(&Stage::UndoOperationType.key(DELETE_OPERATION), DELETE_TYPE);
    }
    changes
}
