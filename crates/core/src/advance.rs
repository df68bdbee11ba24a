//! The engine: every step of the label protocol that a pod's present state allows.

use std::borrow::Cow;

use crate::gate::may_operate;
use crate::keys::Stage;
use crate::operations::{Operation, Operations, UNKNOWN_TYPE};
use crate::patch::LabelChanges;
use crate::time::UnixNanos;
use crate::view::PodView;

/// What a finished operation carries, and an operation that begins must not.
const AFTER_OPERATE: [Stage; 5] =
    [Stage::Operated, Stage::DoneOperationType, Stage::PostCheck, Stage::PostChecked, Stage::Completing];

/// What was granted to an operation.
const GRANTS: [Stage; 3] = [Stage::PreChecked, Stage::Preparing, Stage::Operate];

/// The label changes that bring `new` as far as it may go by itself.
///
/// The mutating webhook calls this within the caller's own write, with the stored pod as `old`; the controller calls it on what
/// it sees, with no `old`. `old` is looked at for one thing only: the labels that an operator took away in this very write.
///
/// # Guarantees
/// - Total and deterministic; a pod that did not opt in is left alone.
/// - Idempotent: applied to its own result it gives nothing.
/// - `operate/<id>` appears only when [`may_operate`] holds.
/// - Only labels of the protocol are touched.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::keys::{self, Stage};
/// use podward_core::{ConditionStatus, Facts, PodView, UnixNanos, advance};
///
/// let stored = BTreeMap::from([
///     (keys::CONTROL_LABEL.to_owned(), "true".to_owned()),
///     (Stage::Operating.key("upgrade"), "1".to_owned()),
///     (Stage::OperationType.key("upgrade"), "update".to_owned()),
///     (Stage::PreChecked.key("upgrade"), "1".to_owned()),
///     (Stage::Operate.key("upgrade"), "1".to_owned()),
///     (keys::permission_key("update"), "1".to_owned()),
/// ]);
/// // The operator finishes: it takes away its `operating` label, and the rest follows in the same write.
/// let mut written = stored.clone();
/// written.remove(&Stage::Operating.key("upgrade"));
/// let view = |labels| PodView {
///     labels,
///     available_conditions: None,
///     finalizers: &[],
///     has_gate: true,
///     gate: Some(ConditionStatus::False),
///     ready: false,
///     terminating: false,
///     facts: Facts::default(),
/// };
/// let changes = advance(Some(&view(&stored)), &view(&written), UnixNanos(7));
/// assert_eq!(changes.set[&Stage::DoneOperationType.key("upgrade")], "update");
/// assert_eq!(changes.set[&Stage::Operated.key("upgrade")], "7");
/// assert!(changes.remove.contains(&keys::permission_key("update")));
/// ```
#[must_use]
pub fn advance(old: Option<&PodView<'_>>, new: &PodView<'_>, now: UnixNanos) -> LabelChanges {
    if !new.is_controlled() {
        return LabelChanges::default();
    }
    let before = Operations::parse(new.labels);
    let mut operations = before.clone();
    let stored = old.map(|old| Operations::parse(old.labels)).unwrap_or_default();
    settle(&mut operations, &stored, new);
    before.changes_to(&operations, now)
}

/// Takes the steps in `operations`, the parsed labels of `pod`, to a fixpoint.
pub(crate) fn settle<'a>(operations: &mut Operations<'a>, stored: &Operations<'_>, pod: &PodView<'_>) {
    let may_operate = may_operate(pod);
    let expected_are_back = pod.has_expected_finalizers();
    finish_half_removed_pairs(operations, stored);
    begin_anew(operations, stored);
    // Every pass moves an operation forward or takes labels away, so this ends; the bound is a belt for the braces.
    for _ in 0..16 {
        let before = operations.clone();
        step(operations, stored, may_operate, expected_are_back);
        if *operations == before {
            break;
        }
    }
}

fn step(
    operations: &mut Operations<'_>,
    stored: &Operations<'_>,
    may_operate: bool,
    expected_are_back: bool,
) {
    let mut leaves_service = false;
    for operation in operations.by_id.values_mut() {
        if operation.has(Stage::UndoOperationType) {
            *operation = Operation::default();
            continue;
        }
        if !operation.awaits_judgement() {
            // Begun again, or accepted: what was refused is of the past.
            operation.take(&[Stage::Rollback]);
        }
        let permitted = operation.known_type().is_none_or(|known| operations.permissions.contains(known));
        if operation.has(Stage::Operating) {
            leaves_service |= step_operating(operation, permitted, may_operate);
        } else {
            step_not_operating(operation, permitted);
        }
    }
    if leaves_service {
        operations.service_available = false;
    }
    if !operations.any_active() {
        finish_all(operations, stored);
        complete_all(operations, expected_are_back);
    }
    operations.by_id.retain(|_, operation| !operation.is_empty());
    drop_unused_permissions(operations);
}

/// An operation whose operator has begun. Tells whether the pod has to leave service for it.
fn step_operating(operation: &mut Operation<'_>, permitted: bool, may_operate: bool) -> bool {
    if operation.has_any(&AFTER_OPERATE) {
        // The id was begun again before its last run was cleaned up.
        start_over(operation);
    }
    if operation.has(Stage::PreChecked) && !permitted {
        // What was granted was granted to another type.
        start_over(operation);
    }
    if !operation.has(Stage::PreChecked) {
        operation.put(Stage::PreCheck);
        return false;
    }
    operation.take(&[Stage::PreCheck]);
    if operation.has(Stage::Operate) {
        operation.take(&[Stage::Preparing]);
    } else if may_operate {
        operation.take(&[Stage::Preparing]);
        operation.put(Stage::Operate);
    } else {
        operation.put(Stage::Preparing);
    }
    true
}

/// An operation whose operator is gone: it has finished, or it gave up before it was allowed to work.
fn step_not_operating(operation: &mut Operation<'_>, permitted: bool) {
    if !operation.has_any(&[Stage::Operate, Stage::Operated]) {
        if operation.has_ours() {
            *operation = Operation::default();
        }
        return;
    }
    if !permitted {
        // The type was changed on the way; what was checked is not what is waiting to end.
        operation.take(&[Stage::PreChecked]);
    }
    if !operation.has(Stage::Operated) {
        return;
    }
    if operation.has(Stage::PostChecked) {
        operation.take(&[Stage::PostCheck]);
        operation.put(Stage::Completing);
    } else {
        operation.put(Stage::PostCheck);
    }
}

/// The operation is checked anew, with nothing inherited. A pod that it keeps out of service stays out meanwhile: nobody has
/// judged yet what was done to it.
fn start_over(operation: &mut Operation<'_>) {
    let awaits_judgement = operation.has(Stage::Operated) && !operation.has(Stage::Completing);
    let is_out = operation.has_any(&[Stage::Preparing, Stage::Operate]) || awaits_judgement;
    operation.take(&AFTER_OPERATE);
    operation.take(&GRANTS);
    if is_out {
        operation.put(Stage::Preparing);
    }
}

/// An id that begins in this very write was finished, or left behind, before: what it holds was granted to its last run. One that
/// was finished and waits for others holds the gate (`operate`), and goes on to hold it.
fn begin_anew(operations: &mut Operations<'_>, stored: &Operations<'_>) {
    for (id, operation) in &mut operations.by_id {
        let begins = operation.has(Stage::Operating)
            && stored.get(id).is_some_and(|stored| !stored.has(Stage::Operating));
        if begins && operation.has_any(&[Stage::PreChecked, Stage::Operate]) {
            let is_out = operation.has(Stage::Operate);
            operation.take(&GRANTS);
            if is_out {
                operation.put(Stage::Preparing);
            }
        }
    }
}

/// `operating` and `operation-type` come and go together. An operator that takes away only `operating` before anything was
/// granted leaves a type that would look like a new announcement.
fn finish_half_removed_pairs(operations: &mut Operations<'_>, stored: &Operations<'_>) {
    for (id, operation) in &mut operations.by_id {
        let was_operating = stored.get(id).is_some_and(|operation| operation.has(Stage::Operating));
        let in_hand = operation.has_any(&[Stage::Operating, Stage::Operate, Stage::Operated]);
        if was_operating && !in_hand {
            operation.take(&[Stage::OperationType]);
        }
    }
}

/// All operators are done: the operations that were granted are finished, together.
fn finish_all(operations: &mut Operations<'_>, stored: &Operations<'_>) {
    let finished: Vec<&str> = operations
        .by_id
        .iter()
        .filter(|(_, operation)| {
            !operation.has(Stage::Operating)
                && operation.has_any(&[Stage::Operate, Stage::Operated])
                && (operation.has(Stage::Operate) || !operation.has(Stage::DoneOperationType))
        })
        .map(|(id, _)| *id)
        .collect();
    for id in finished {
        let stored_type =
            || stored.get(id).and_then(Operation::known_type).map(|known| Cow::Owned(known.to_owned()));
        let known = operations.type_of(id).or_else(stored_type).unwrap_or(Cow::Borrowed(UNKNOWN_TYPE));
        if let Some(operation) = operations.by_id.get_mut(id) {
            operation.take(&GRANTS);
            operation.take(&[Stage::PreCheck, Stage::OperationType]);
            operation.put(Stage::Operated);
            operation.put_done_type(known);
            operation.put(Stage::PostCheck);
        }
    }
}

/// Every operation is ready to end, and everybody who has to hold the pod does: nothing of them is left.
fn complete_all(operations: &mut Operations<'_>, expected_are_back: bool) {
    let all_completing = operations
        .by_id
        .values()
        .filter(|operation| operation.is_live())
        .all(|operation| operation.has(Stage::Completing));
    if expected_are_back && all_completing {
        operations.by_id.retain(|_, operation| !operation.has(Stage::Completing));
    }
}

/// A permission stands while an operation of its type has been granted and isn't over. There is none where nothing is pre-checked, not
/// even if it alone tells an operation's type: what was begun again, still out of service, is permitted anew.
fn drop_unused_permissions(operations: &mut Operations<'_>) {
    if !operations.by_id.values().any(|operation| operation.has(Stage::PreChecked)) {
        operations.permissions.clear();
        return;
    }
    let is_granted = |operation: &Operation<'_>| operation.has_any(&[Stage::PreChecked, Stage::Operate]);
    let granted: Vec<&str> =
        operations.by_id.iter().filter(|(_, operation)| is_granted(operation)).map(|(id, _)| *id).collect();
    let types: Option<Vec<_>> = granted.into_iter().map(|id| operations.type_of(id)).collect();
    // With a type that can't be told every permission may be the one that is needed.
    if let Some(types) = types {
        operations.permissions.retain(|permission| types.contains(permission));
    }
}
