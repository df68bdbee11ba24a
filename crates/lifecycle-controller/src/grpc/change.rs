//! What Begin, Finish and Cancel write: the labels that a client of the label protocol would, and what follows from them at once.

use std::collections::BTreeMap;

use podward_api::is_label_value;
use podward_core::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use podward_core::{LabelChanges, Operation, Operations, Phase, PodView, UNKNOWN_TYPE, UnixNanos, advance};
use tonic::Status;

use super::pods::must_be_open;
use crate::cached_pod::CachedPod;

/// What is to be done to a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is so already.
    Nothing,
    /// These changes; never none.
    Change(LabelChanges),
    /// These annotations, at least one: new texts, or `None` where they go.
    Annotate(Vec<(&'static str, Option<String>)>),
}

/// Refuses an id or type that no label could carry.
pub(super) fn check_words(id: &str, operation_type: Option<&str>) -> Result<(), Status> {
    let form = "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
    if !is_label_value(id) {
        return Err(Status::invalid_argument(format!("the operation's id must be a label name: {form}")));
    }
    if operation_type.is_some_and(|text| !is_label_value(text)) {
        return Err(Status::invalid_argument(format!("the operation's type must be a label value: {form}")));
    }
    Ok(())
}

/// Announces the operation.
pub(super) fn begin(
    pod: &CachedPod,
    id: &str,
    operation_type: &str,
    now: UnixNanos,
) -> Result<Decision, Status> {
    must_be_open(pod)?;
    if id == DELETE_OPERATION {
        return Err(Status::invalid_argument(format!(
            "the operation {DELETE_OPERATION} is begun by RequestDeletion"
        )));
    }
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let present = operations.get(id).filter(|operation| operation.is_live());
    if let Some(operation) = present {
        let known = operations.type_of(id);
        let known = known.as_deref().unwrap_or(UNKNOWN_TYPE);
        if known != operation_type {
            return Err(Status::already_exists(format!(
                "pod {} has an operation {id} of type {known}; finish or cancel it first, or choose another id",
                pod.key()
            )));
        }
        if operation.is_active() && !operation.has(Stage::UndoOperationType) {
            return Ok(Decision::Nothing);
        }
    }
    Ok(with_what_follows(&view, now, |labels| {
        labels.remove(&Stage::UndoOperationType.key(id));
        labels.insert(Stage::Operating.key(id), now.to_string());
        labels.insert(Stage::OperationType.key(id), operation_type.to_owned());
    }))
}

/// The operator is done.
pub(super) fn finish(pod: &CachedPod, id: &str, now: UnixNanos) -> Result<Decision, Status> {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let phase = operations.get(id).and_then(Phase::of);
    match phase {
        Some(Phase::Operating) => Ok(with_what_follows(&view, now, |labels| {
            labels.remove(&Stage::Operating.key(id));
            labels.remove(&Stage::OperationType.key(id));
        })),
        Some(Phase::WaitingForOthers | Phase::PostChecking | Phase::Completing) => Ok(Decision::Nothing),
        phase => {
            let state =
                phase.map_or("there is none by that id".to_owned(), |phase| format!("its phase is {phase}"));
            Err(Status::failed_precondition(format!(
                "operation {id} on pod {} is not OPERATING ({state}), so there is nothing to finish; Cancel ends it in any step",
                pod.key()
            )))
        }
    }
}

/// The operation is not to be any more.
pub(super) fn cancel(pod: &CachedPod, id: &str, now: UnixNanos) -> Result<Decision, Status> {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let operation = operations.get(id);
    if id == DELETE_OPERATION {
        let granted = operation.is_some_and(|operation| operation.has(Stage::Operate));
        if view.terminating || granted {
            return Err(Status::failed_precondition(format!(
                "pod {} is being deleted: every party has let go of it",
                pod.key()
            )));
        }
        if view.labels.contains_key(TO_DELETE) {
            // The leader sees to the rest: it has room in a disruption budget to give back, too.
            return Ok(with_what_follows(&view, now, |labels| {
                labels.remove(TO_DELETE);
            }));
        }
    }
    let Some(operation) = operation else { return Ok(Decision::Nothing) };
    let known = type_of(&operations, id, operation);
    Ok(with_what_follows(&view, now, |labels| {
        labels.insert(Stage::UndoOperationType.key(id), known);
    }))
}

fn type_of(operations: &Operations<'_>, id: &str, operation: &Operation<'_>) -> String {
    let known = operations.type_of(id).map(|known| known.into_owned());
    let known = known.or_else(|| operation.known_type().map(ToOwned::to_owned));
    known.filter(|known| !known.is_empty()).unwrap_or_else(|| UNKNOWN_TYPE.to_owned())
}

/// `change`, and the steps that the engine takes because of it: so one write does, and the mutating webhook, which would add the same,
/// finds nothing left to add.
fn with_what_follows(
    pod: &PodView<'_>,
    now: UnixNanos,
    change: impl FnOnce(&mut BTreeMap<String, String>),
) -> Decision {
    let mut labels = pod.labels.clone();
    change(&mut labels);
    let written = PodView { labels: &labels, ..*pod };
    let more = advance(Some(pod), &written, now);
    more.apply(&mut labels);
    let changes = LabelChanges::between(pod.labels, &labels);
    if changes.is_empty() { Decision::Nothing } else { Decision::Change(changes) }
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

    fn changes(decision: Result<Decision, Status>) -> LabelChanges {
        match decision {
            Ok(Decision::Change(changes)) => changes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn begin_announces_once_and_takes_the_first_step_with_it() {
        let begun = changes(begin(&pod(&[]), "a", "update", NOW));
        assert_eq!(
            begun.set.keys().cloned().collect::<Vec<_>>(),
            [Stage::Operating.key("a"), Stage::OperationType.key("a"), Stage::PreCheck.key("a"),]
        );
        let announced = pod(&[(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "update")]);
        assert_eq!(begin(&announced, "a", "update", NOW).unwrap(), Decision::Nothing);
        assert_eq!(begin(&announced, "a", "restart", NOW).unwrap_err().code(), Code::AlreadyExists);
        assert_eq!(begin(&pod(&operating("a")), "a", "update", NOW).unwrap(), Decision::Nothing);
        assert_eq!(
            begin(&pod(&[]), DELETE_OPERATION, "delete", NOW).unwrap_err().code(),
            Code::InvalidArgument
        );
    }

    #[test]
    fn only_an_open_pod_is_begun_on() {
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
    fn finish_is_for_operations_that_have_their_permission() {
        let finished = changes(finish(&pod(&operating("a")), "a", NOW));
        assert!(
            finished.remove.contains(&Stage::Operating.key("a"))
                && finished.set.contains_key(&Stage::Operated.key("a"))
        );
        let mut labels = pod(&operating("a")).view().labels.clone();
        finished.apply(&mut labels);
        let after: Vec<_> = labels.iter().map(|(key, value)| (key.clone(), value.as_str())).collect();
        assert_eq!(finish(&pod(&after), "a", NOW).unwrap(), Decision::Nothing, "repeated");
        let announced = pod(&[(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "update")]);
        assert_eq!(finish(&announced, "a", NOW).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(finish(&pod(&[]), "a", NOW).unwrap_err().code(), Code::FailedPrecondition);
    }

    /// An operator whose result is refused begins again under the same id, or cancels.
    #[test]
    fn a_refused_operation_is_begun_again_or_cancelled() {
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

    #[test]
    fn cancel_leaves_nothing() {
        let pod = pod(&operating("a"));
        let mut labels = pod.view().labels.clone();
        changes(cancel(&pod, "a", NOW)).apply(&mut labels);
        assert_eq!(labels.keys().collect::<Vec<_>>(), [CONTROL_LABEL]);
        assert_eq!(cancel(&pod, "b", NOW).unwrap(), Decision::Nothing);
    }

    #[test]
    fn cancelling_a_deletion_takes_its_mark_away_until_it_is_granted() {
        let wished = [
            (TO_DELETE.to_owned(), "1"),
            (Stage::Operating.key(DELETE_OPERATION), "1"),
            (Stage::OperationType.key(DELETE_OPERATION), "delete"),
            (Stage::PreCheck.key(DELETE_OPERATION), "1"),
        ];
        let cancelled = changes(cancel(&pod(&wished), DELETE_OPERATION, NOW));
        assert_eq!(cancelled, LabelChanges { set: BTreeMap::new(), remove: [TO_DELETE.to_owned()].into() });
        let granted = pod(&operating(DELETE_OPERATION));
        assert_eq!(cancel(&granted, DELETE_OPERATION, NOW).unwrap_err().code(), Code::FailedPrecondition);
    }
}
