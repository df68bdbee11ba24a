//! The label changes of Begin, Finish and Cancel: those that a client of the label protocol writes, and the next steps
//! of the protocol.

use std::collections::BTreeMap;

use podward_api::is_label_value;
use podward_core::deletion::Withdrawal;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, DELETE_OPERATION, Stage, TO_DELETE};
use podward_core::{
    LabelChanges, Operation, OperationPhase, Operations, PodView, UNKNOWN_TYPE, UnixNanos, with_next_steps,
};
use podward_kube_util::CachedPod;
use tonic::Status;

use super::pod_change::PodChange;

/// Checks that labels can contain the id and the type of an operation.
///
/// # Errors
/// INVALID_ARGUMENT if they cannot.
pub fn check_operation(id: &str, operation_type: Option<&str>) -> Result<(), Status> {
    let form = "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
    if !is_label_value(id) {
        return Err(Status::invalid_argument(format!(
            "the id of the operation is not valid: it must have {form}"
        )));
    }
    if operation_type.is_some_and(|text| !is_label_value(text)) {
        return Err(Status::invalid_argument(format!(
            "the type of the operation is not valid: it must have {form}"
        )));
    }
    Ok(())
}

/// Checks that an operation can begin on `pod`.
///
/// # Errors
/// FAILED_PRECONDITION if the pod has not opted in or is being deleted.
pub(super) fn check_can_begin(pod: &CachedPod) -> Result<(), Status> {
    let view = pod.view();
    if !view.is_controlled() {
        return Err(Status::failed_precondition(format!(
            "pod {} has not opted in; add the label {CONTROL_LABEL}={CONTROL_VALUE} to its pod template",
            pod.key()
        )));
    }
    if view.terminating {
        return Err(Status::failed_precondition(format!("pod {} is being deleted", pod.key())));
    }
    Ok(())
}

/// Returns the change that begins the operation.
///
/// # Errors
/// FAILED_PRECONDITION if no operation can begin on the pod; ALREADY_EXISTS if the id is in use with another type;
/// INVALID_ARGUMENT for the id of deletions.
pub(super) fn begin(
    pod: &CachedPod,
    id: &str,
    operation_type: &str,
    now: UnixNanos,
) -> Result<PodChange, Status> {
    check_can_begin(pod)?;
    if id == DELETE_OPERATION {
        return Err(Status::invalid_argument(format!(
            "the id {DELETE_OPERATION} is reserved for deletions; call RequestDeletion instead"
        )));
    }
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let present = operations.get(id).filter(|operation| operation.is_live());
    if let Some(operation) = present {
        let known = operations.type_of(id);
        let known = known.as_deref().unwrap_or(UNKNOWN_TYPE);
        let is_same = known == operation_type;
        // Without a known type, any type begins it again, as any type cancels it.
        if !is_same && known != UNKNOWN_TYPE {
            return Err(Status::already_exists(format!(
                "pod {} already has an operation {id} of type {known}; finish or cancel it first, or choose another id",
                pod.key()
            )));
        }
        if is_same && operation.is_active() && !operation.has(Stage::UndoOperationType) {
            return Ok(PodChange::None);
        }
    }
    Ok(changed(&view, now, |labels| {
        labels.remove(&Stage::UndoOperationType.key(id));
        labels.insert(Stage::Operating.key(id), now.to_string());
        labels.insert(Stage::OperationType.key(id), operation_type.to_owned());
    }))
}

/// Returns the change that finishes the operation.
///
/// # Errors
/// FAILED_PRECONDITION if the operation does not have its permission; NOT_FOUND if it does not exist.
pub(super) fn finish(pod: &CachedPod, id: &str, now: UnixNanos) -> Result<PodChange, Status> {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let phase = operations.get(id).and_then(OperationPhase::of);
    match phase {
        Some(OperationPhase::Operating) => Ok(changed(&view, now, |labels| {
            labels.remove(&Stage::Operating.key(id));
            labels.remove(&Stage::OperationType.key(id));
        })),
        Some(
            OperationPhase::WaitingForOthers | OperationPhase::PostChecking | OperationPhase::Completing,
        ) => Ok(PodChange::None),
        Some(phase) => Err(Status::failed_precondition(format!(
            "could not finish operation {id} on pod {}: it is not OPERATING, its phase is {phase}; call Cancel to end it \
             in any step",
            pod.key()
        ))),
        None => Err(Status::not_found(format!(
            "could not finish operation {id} on pod {}: it does not exist; it has ended after an earlier Finish or a \
             Cancel, or it was never begun",
            pod.key()
        ))),
    }
}

/// Returns the change that cancels the operation.
///
/// # Errors
/// FAILED_PRECONDITION if the operation is a deletion that can no longer be withdrawn.
pub(super) fn cancel(pod: &CachedPod, id: &str, now: UnixNanos) -> Result<PodChange, Status> {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    match Withdrawal::of(&view, &operations) {
        _ if id != DELETE_OPERATION => {}
        Withdrawal::TooLate => {
            return Err(Status::failed_precondition(format!(
                "could not cancel the deletion of pod {}: it has already been granted",
                pod.key()
            )));
        }
        Withdrawal::RemoveLabel => {
            return Ok(changed(&view, now, |labels| {
                labels.remove(TO_DELETE);
            }));
        }
        Withdrawal::NoRequest => {}
    }
    let Some(operation) = operations.get(id) else { return Ok(PodChange::None) };
    let known = type_of(&operations, id, operation);
    Ok(changed(&view, now, |labels| {
        labels.insert(Stage::UndoOperationType.key(id), known);
    }))
}

fn type_of(operations: &Operations<'_>, id: &str, operation: &Operation<'_>) -> String {
    let known = operations.type_of(id).map(|known| known.into_owned());
    let known = known.or_else(|| operation.known_type().map(ToOwned::to_owned));
    known.filter(|known| !known.is_empty()).unwrap_or_else(|| UNKNOWN_TYPE.to_owned())
}

/// Applies `change` and the steps of the protocol that follow from it, so that one write is enough. The mutating
/// webhook would add the same steps.
fn changed(
    pod: &PodView<'_>,
    now: UnixNanos,
    change: impl FnOnce(&mut BTreeMap<String, String>),
) -> PodChange {
    let mut labels = pod.labels.clone();
    change(&mut labels);
    let changes = with_next_steps(pod, &LabelChanges::between(pod.labels, &labels), now);
    if changes.is_empty() { PodChange::None } else { PodChange::Labels(changes) }
}

#[cfg(test)]
mod tests {
    use podward_core::keys::{CONTROL_LABEL, permission_key};
    use serde_json::{Map, Value, json};
    use tonic::Code;

    use super::*;

    const NOW: UnixNanos = UnixNanos(7);

    fn pod(labels: &[(String, &str)]) -> CachedPod {
        let mut all = Map::from_iter([(CONTROL_LABEL.to_owned(), Value::from("true"))]);
        all.extend(labels.iter().map(|(key, value)| (key.clone(), Value::from(*value))));
        let metadata = json!({"name": "web", "namespace": "shop", "labels": all});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn operating(id: &str) -> Vec<(String, &'static str)> {
        let stages = [Stage::Operating, Stage::PreChecked, Stage::Operate];
        let mut labels: Vec<_> = stages.map(|stage| (stage.key(id), "1")).into();
        labels.extend([(Stage::OperationType.key(id), "update"), (permission_key("update"), "1")]);
        labels
    }

    fn changes(decision: Result<PodChange, Status>) -> LabelChanges {
        match decision {
            Ok(PodChange::Labels(changes)) => changes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn begin_announces_once_and_includes_the_first_step() {
        let begun = changes(begin(&pod(&[]), "a", "update", NOW));
        assert_eq!(
            begun.set.keys().cloned().collect::<Vec<_>>(),
            [Stage::Operating.key("a"), Stage::OperationType.key("a"), Stage::PreCheck.key("a"),]
        );
        let announced = pod(&[(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "update")]);
        assert_eq!(begin(&announced, "a", "update", NOW).unwrap(), PodChange::None);
        assert_eq!(begin(&announced, "a", "restart", NOW).unwrap_err().code(), Code::AlreadyExists);
        assert_eq!(begin(&pod(&operating("a")), "a", "update", NOW).unwrap(), PodChange::None);
        assert_eq!(
            begin(&pod(&[]), DELETE_OPERATION, "delete", NOW).unwrap_err().code(),
            Code::InvalidArgument
        );
    }

    #[test]
    fn operations_begin_only_on_opted_in_pods_that_are_not_being_deleted() {
        for change in
            [json!({"labels": {CONTROL_LABEL: "no"}}), json!({"deletionTimestamp": "2026-01-01T10:00:00Z"})]
        {
            let mut metadata = json!({"name": "web", "namespace": "shop", "labels": {CONTROL_LABEL: "true"}});
            json_patch::merge(&mut metadata, &change);
            let pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            assert_eq!(begin(&pod, "a", "update", NOW).unwrap_err().code(), Code::FailedPrecondition);
        }
    }

    #[test]
    fn finish_requires_the_permission() {
        let finished = changes(finish(&pod(&operating("a")), "a", NOW));
        assert!(
            finished.remove.contains(&Stage::Operating.key("a"))
                && finished.set.contains_key(&Stage::Operated.key("a"))
        );
        let mut labels = pod(&operating("a")).view().labels.clone();
        finished.apply(&mut labels);
        let after: Vec<_> = labels.iter().map(|(key, value)| (key.clone(), value.as_str())).collect();
        assert_eq!(finish(&pod(&after), "a", NOW).unwrap(), PodChange::None, "repeated");
        let announced = pod(&[(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "update")]);
        assert_eq!(finish(&announced, "a", NOW).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(finish(&pod(&[]), "a", NOW).unwrap_err().code(), Code::NotFound, "repeated after its end");
    }

    /// An operator whose result is refused begins again with the same id, or cancels.
    #[test]
    fn a_refused_operation_can_begin_again_or_be_cancelled() {
        let stages = [Stage::Operated, Stage::PostCheck, Stage::Rollback];
        let mut labels: Vec<_> = stages.map(|stage| (stage.key("a"), "1")).into();
        labels.push((Stage::DoneOperationType.key("a"), "update"));
        let refused = pod(&labels);
        let after = |decision| {
            let mut labels = refused.view().labels.clone();
            changes(decision).apply(&mut labels);
            labels.into_keys().filter(|key| key != CONTROL_LABEL).collect::<Vec<_>>()
        };
        let stages = [Stage::Operating, Stage::OperationType, Stage::PreCheck, Stage::Preparing];
        assert_eq!(after(begin(&refused, "a", "update", NOW)), stages.map(|stage| stage.key("a")));
        assert_eq!(begin(&refused, "a", "other", NOW).unwrap_err().code(), Code::AlreadyExists);
        assert_eq!(after(cancel(&refused, "a", NOW)), Vec::<String>::new());
    }

    /// The operator has removed its type while others worked, and nothing says any more what it was.
    #[test]
    fn an_operation_whose_type_is_lost_can_begin_again() {
        let stages = [Stage::Operated, Stage::PostCheck];
        let mut labels: Vec<_> = stages.map(|stage| (stage.key("a"), "1")).into();
        labels.push((Stage::DoneOperationType.key("a"), UNKNOWN_TYPE));
        let begun = changes(begin(&pod(&labels), "a", "update", NOW));
        assert_eq!(begun.set[&Stage::OperationType.key("a")], "update");
        assert!(begun.remove.contains(&Stage::DoneOperationType.key("a")));

        let lost = [Stage::Operating, Stage::PreChecked, Stage::Operate].map(|stage| (stage.key("a"), "1"));
        let begun = changes(begin(&pod(&lost), "a", "update", NOW));
        assert_eq!(begun.set[&Stage::OperationType.key("a")], "update", "while it is active, too");
    }

    #[test]
    fn cancel_removes_all_labels_of_the_operation() {
        let pod = pod(&operating("a"));
        let mut labels = pod.view().labels.clone();
        changes(cancel(&pod, "a", NOW)).apply(&mut labels);
        assert_eq!(labels.keys().collect::<Vec<_>>(), [CONTROL_LABEL]);
        assert_eq!(cancel(&pod, "b", NOW).unwrap(), PodChange::None);
    }

    #[test]
    fn a_deletion_can_be_cancelled_until_it_is_granted() {
        let requested = [
            (TO_DELETE.to_owned(), "1"),
            (Stage::Operating.key(DELETE_OPERATION), "1"),
            (Stage::OperationType.key(DELETE_OPERATION), "delete"),
            (Stage::PreCheck.key(DELETE_OPERATION), "1"),
        ];
        let cancelled = changes(cancel(&pod(&requested), DELETE_OPERATION, NOW));
        assert_eq!(cancelled, LabelChanges { set: BTreeMap::new(), remove: [TO_DELETE.to_owned()].into() });
        let granted = pod(&operating(DELETE_OPERATION));
        assert_eq!(cancel(&granted, DELETE_OPERATION, NOW).unwrap_err().code(), Code::FailedPrecondition);
    }
}
