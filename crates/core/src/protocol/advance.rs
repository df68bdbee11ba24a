//! The steps of the label protocol that follow from the state of a pod.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::gate::{available, may_operate, ready_follows_gate};
use super::preparing_to_delete::{any_announced, is_left_over};
use crate::model::hook_keys::{hook_of_consumer_key, is_hook_finalizer};
use crate::model::keys::{COMPLETING, CREATING, PREPARING_TO_DELETE, Stage};
use crate::model::label_changes::LabelChanges;
use crate::model::lost_type::LostType;
use crate::model::operations::{Operation, Operations, UNKNOWN_TYPE};
use crate::model::time::UnixNanos;
use crate::model::view::{PodFacts, PodView};

/// The labels of a finished operation. A new run must not have them.
const AFTER_OPERATE: [Stage; 5] =
    [Stage::Operated, Stage::DoneOperationType, Stage::PostCheck, Stage::PostChecked, Stage::Completing];

/// The labels that grant an operation something.
const GRANTS: [Stage; 3] = [Stage::PreChecked, Stage::Preparing, Stage::Operate];

/// Returns the label changes that advance `new` as far as its state allows.
///
/// The mutating webhook calls it within the caller's write, with the stored pod as `old`. The controller calls it on
/// the observed pod, without `old`. `old` only shows which labels the operator removed in this write, and whether the
/// write adds the last expected finalizer. Only such a write makes the pod available: any other write can be that of a
/// kubelet, which may not change labels. The controller does it otherwise, also while Ready is older than the gate. Only
/// the controller ends the operations of a pod that has finished without its consumers, too.
///
/// # Guarantees
/// - Deterministic. A pod that has not opted in does not change.
/// - Idempotent: applied to its own result it returns no changes.
/// - `operate/<id>` appears only when [`may_operate`] holds, and `service-available` only when [`available`] holds.
/// - Only labels of the protocol change.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::keys::{self, Stage};
/// use podward_core::{ConditionStatus, PodFacts, PodView, UnixNanos, advance};
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
///     facts: PodFacts::default(),
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
    // The write in which a kubelet says that the pod has finished must not change labels, either.
    let facts = PodFacts { finished: new.facts.finished && old.is_none(), ..new.facts };
    settle(&mut operations, &stored, &PodView { facts, ..*new });
    let becomes_available = || {
        available(new, &operations)
            && old.is_some_and(|old| adds_the_last_finalizer(old, new))
            && ready_follows_gate(new)
    };
    operations.service_available = operations.service_available || becomes_available();
    let mut changes = changes_to(&before, &operations, new, now);
    // The caller may also have removed all labels of the operation.
    if any_announced(&stored) && is_left_over(new.labels, &operations) {
        changes.remove.insert(PREPARING_TO_DELETE.to_owned());
    }
    if old.is_some_and(|old| old.labels.get(PREPARING_TO_DELETE) != new.labels.get(PREPARING_TO_DELETE)) {
        // It is for an operation that is announced with the next write.
        changes.remove.remove(PREPARING_TO_DELETE);
    }
    changes
}

/// Returns whether `new` has all expected finalizers, of which `old` lacks some. False while a hook may not have added
/// the pod: its finalizer shows that only when it was there before and no request to a hook is stored.
fn adds_the_last_finalizer(old: &PodView<'_>, new: &PodView<'_>) -> bool {
    let Ok(expected) = new.expected_finalizers() else { return false };
    let is_hook = |(consumer, finalizer): (&str, &str)| {
        hook_of_consumer_key(consumer).is_some() || is_hook_finalizer(finalizer)
    };
    let mut missing = expected.missing(old.finalizers).peekable();
    let adds = missing.peek().is_some() && expected.missing(new.finalizers).next().is_none();
    adds && !missing.any(is_hook) && old.facts.hook_requests.is_none()
}

/// Returns the changes of the labels of `pod` from `before` to `after`. When the pod becomes available, it is neither
/// being created nor completing any more. When its last operation ends, it is not being prepared for its deletion.
pub(crate) fn changes_to(
    before: &Operations<'_>,
    after: &Operations<'_>,
    pod: &PodView<'_>,
    now: UnixNanos,
) -> LabelChanges {
    let mut changes = before.changes_to(after, now);
    if after.service_available && !before.service_available {
        let done = [CREATING, COMPLETING].into_iter().filter(|key| pod.labels.contains_key(*key));
        changes.remove.extend(done.map(ToOwned::to_owned));
    }
    if any_announced(before) && is_left_over(pod.labels, after) {
        changes.remove.insert(PREPARING_TO_DELETE.to_owned());
    }
    changes
}

/// Returns the label changes of one write to `stored`: `written`, and the steps of [`advance`] that follow from it. The
/// stored result is a fixpoint of [`advance`], so that no later write of another client, such as a kubelet, is extended
/// by the mutating webhook. `now` is the value of new timestamps.
#[must_use]
pub fn with_next_steps(stored: &PodView<'_>, written: &LabelChanges, now: UnixNanos) -> LabelChanges {
    let mut labels = stored.labels.clone();
    written.apply(&mut labels);
    let new = PodView { labels: &labels, ..*stored };
    let steps = advance(Some(stored), &new, now);
    steps.apply(&mut labels);
    LabelChanges::between(stored.labels, &labels)
}

/// Applies the steps to `operations`, the parsed labels of `pod`, until nothing changes.
pub(crate) fn settle<'a>(operations: &mut Operations<'a>, stored: &Operations<'_>, pod: &PodView<'_>) {
    let may_operate = may_operate(pod);
    finish_half_removed_pairs(operations, stored);
    begin_anew(operations, stored);
    // Every pass advances an operation or removes labels, so the loop ends. The bound is a safety net.
    for _ in 0..16 {
        let before = operations.clone();
        step(operations, stored, pod, may_operate);
        if *operations == before {
            break;
        }
    }
}

fn step(operations: &mut Operations<'_>, stored: &Operations<'_>, pod: &PodView<'_>, may_operate: bool) {
    let mut leaves_service = false;
    for operation in operations.by_id.values_mut() {
        if operation.has(Stage::UndoOperationType) {
            *operation = Operation::default();
            continue;
        }
        if !operation.awaits_judgement() {
            // The operation was begun again, or its result was accepted: the refusal is obsolete.
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
    if !operations.by_id.values().any(Operation::is_at_work) {
        finish_all(operations, stored);
        complete_all(operations, pod);
    }
    operations.by_id.retain(|_, operation| !operation.is_empty());
    drop_unused_permissions(operations);
}

/// Steps an operation whose operator has begun. Returns whether the pod must leave service for it.
fn step_operating(operation: &mut Operation<'_>, permitted: bool, may_operate: bool) -> bool {
    if operation.has_any(&AFTER_OPERATE) {
        // The id was begun again before the labels of its last run were removed.
        start_over(operation);
    }
    if operation.has(Stage::PreChecked) && !permitted {
        // The permission was granted to another type.
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

/// Steps an operation whose operator has finished, or gave up before it had its permission.
fn step_not_operating(operation: &mut Operation<'_>, permitted: bool) {
    if !operation.has_any(&[Stage::Operate, Stage::Operated]) {
        if operation.has_ours() {
            *operation = Operation::default();
        }
        return;
    }
    if !permitted {
        // The type changed in between: the checks were made for another type.
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

/// Starts the checks again, without the grants of the last run. A pod that is out of service stays out, because its
/// result is not checked yet. It keeps its type: without one it could not be checked.
fn start_over(operation: &mut Operation<'_>) {
    let known = operation.known_type().map(|known| Cow::Owned(known.to_owned()));
    let awaits_judgement = operation.has(Stage::Operated) && !operation.has(Stage::Completing);
    let is_out = operation.has_any(&[Stage::Preparing, Stage::Operate]) || awaits_judgement;
    operation.take(&AFTER_OPERATE);
    operation.take(&GRANTS);
    if is_out {
        operation.put(Stage::Preparing);
        operation.keep_type(known);
    }
}

/// Removes the grants of the last run from an id that begins in this write. An operation that has finished and waits
/// for others keeps the pod out of service with `operate`; it continues to do so.
fn begin_anew(operations: &mut Operations<'_>, stored: &Operations<'_>) {
    for (id, operation) in &mut operations.by_id {
        let begins = operation.has(Stage::Operating)
            && stored.get(id).is_some_and(|stored| !stored.has(Stage::Operating));
        if begins && operation.has_any(&[Stage::PreChecked, Stage::Operate]) {
            let is_out = operation.has(Stage::Operate);
            operation.take(&GRANTS);
            if is_out {
                operation.put(Stage::Preparing);
                operation.keep_type(stored.type_of(id).map(|known| Cow::Owned(known.into_owned())));
            }
        }
    }
}

/// Removes `operation-type` when the operator removes only `operating` before anything was granted. The two belong
/// together, and a lone type would look like a new announcement.
fn finish_half_removed_pairs(operations: &mut Operations<'_>, stored: &Operations<'_>) {
    for (id, operation) in &mut operations.by_id {
        let was_operating = stored.get(id).is_some_and(|operation| operation.has(Stage::Operating));
        let in_hand = operation.has_any(&[Stage::Operating, Stage::Operate, Stage::Operated]);
        if was_operating && !in_hand {
            operation.take(&[Stage::OperationType]);
        }
    }
}

/// Finishes all operations that have their permission together, when all their operators have finished. The types that
/// are left for those whose type is lost are known once the types of the others are.
fn finish_all(operations: &mut Operations<'_>, stored: &Operations<'_>) {
    let finished: Vec<(&str, Option<String>)> = operations
        .by_id
        .iter()
        .filter(|(_, operation)| {
            !operation.has(Stage::Operating)
                && operation.has_any(&[Stage::Operate, Stage::Operated])
                && (operation.has(Stage::Operate) || !operation.has(Stage::DoneOperationType))
        })
        .map(|(id, operation)| {
            let known = operation.known_type().or_else(|| stored.get(id).and_then(Operation::known_type));
            (*id, known.map(ToOwned::to_owned))
        })
        .collect();
    let mut lost = operations.lost_type();
    finished.iter().filter_map(|(_, known)| known.as_deref()).for_each(|known| lost.claim(known));
    for (id, known) in finished {
        let Some(operation) = operations.by_id.get_mut(id) else { continue };
        let lost_type = || lost.get().filter(|_| operation.has_lost_type()).cloned();
        let known = known.map(Cow::Owned).or_else(lost_type).unwrap_or(Cow::Borrowed(UNKNOWN_TYPE));
        operation.take(&GRANTS);
        operation.take(&[Stage::PreCheck, Stage::OperationType]);
        operation.put(Stage::Operated);
        operation.put_done_type(known);
        operation.put(Stage::PostCheck);
    }
}

/// Removes all labels of the operations that are completing when every operation that has started is, and every
/// expected consumer uses the pod. No consumer uses a pod that has finished or stays offline, so its operations do not
/// wait for them.
fn complete_all(operations: &mut Operations<'_>, pod: &PodView<'_>) {
    let is_completing = |operation: &Operation<'_>| operation.has(Stage::Completing);
    let mut started = operations.by_id.values().filter(|operation| operation.has_started());
    if operations.by_id.values().any(is_completing)
        && started.all(is_completing)
        && (pod.facts.finished || pod.stays_offline() || pod.has_expected_finalizers())
    {
        operations.by_id.retain(|_, operation| !is_completing(operation));
    }
}

/// Removes permissions that no granted operation needs. Without any `pre-checked` there is no permission, even if it is
/// the only record of an operation's type: an operation that is begun again gets a new permission.
fn drop_unused_permissions(operations: &mut Operations<'_>) {
    if !operations.by_id.values().any(|operation| operation.has(Stage::PreChecked)) {
        operations.permissions.clear();
        return;
    }
    let is_granted = |operation: &Operation<'_>| operation.has_any(&[Stage::PreChecked, Stage::Operate]);
    let granted = || operations.by_id.values().filter(|operation| is_granted(operation));
    let lost = granted().any(Operation::has_lost_type).then(|| operations.lost_type());
    let lost = lost.as_ref().and_then(LostType::get).map(|found| &**found);
    let types: Option<BTreeSet<&str>> = granted().map(|operation| operation.known_type().or(lost)).collect();
    // If a type is unknown, any permission may be the one that is needed.
    if let Some(types) = types {
        operations.permissions.retain(|permission| types.contains(permission.as_ref()));
    }
}
