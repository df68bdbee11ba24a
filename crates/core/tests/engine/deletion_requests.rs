//! Marks of requests: written, read, withdrawn; and with the engine, that nothing is left of them.

use std::collections::BTreeMap;

use podward_core::deletion::request::{
    CancelledBy, DeletionIntent, DeletionKind, DeletionMarks, DeletionRequest, DeletionRequestChanges,
    cancel, intent, join, postpone, record, replace,
};
use podward_core::keys::{self, Stage};
use podward_core::{ConditionStatus, NoRules, Operations, PodFacts, PodHooks, PodView, UnixNanos, plan};
use proptest::prelude::*;

pub(crate) const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

/// A pod as far as requests go.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marked {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Marked {
    fn new() -> Self {
        let labels = BTreeMap::from([(keys::CONTROL_LABEL.to_owned(), "true".to_owned())]);
        Marked { labels, ..Marked::default() }
    }

    fn deletion_request(&self) -> Option<DeletionRequest> {
        self.annotations.get(keys::DELETION_REQUEST).and_then(|text| DeletionRequest::parse(text))
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&DeletionMarks<'_>) -> T) -> T {
        let request = self.deletion_request();
        read(&DeletionMarks {
            labels: &self.labels,
            request: request.as_ref(),
            delete_timestamp: self.annotations.get(keys::DELETE_TIMESTAMP).map(String::as_str),
            deletion_cost: self.annotations.get(keys::POD_DELETION_COST).map(String::as_str),
        })
    }

    fn intent(&self) -> DeletionIntent {
        self.with(intent)
    }

    /// Writes `changes`, with what the engine makes of them.
    fn write(&mut self, changes: &DeletionRequestChanges) {
        changes.labels.apply(&mut self.labels);
        for (key, text) in &changes.annotations {
            match text {
                Some(text) => self.annotations.insert((*key).to_owned(), text.clone()),
                None => self.annotations.remove(*key),
            };
        }
        self.engine();
    }

    fn engine(&mut self) {
        let view = PodView {
            labels: &self.labels,
            available_conditions: None,
            finalizers: &[],
            has_gate: true,
            gate: Some(ConditionStatus::True),
            ready: true,
            terminating: false,
            facts: PodFacts::default(),
        };
        let changes = plan(&view, &PodHooks::none(), &NoRules, NOW).labels;
        changes.apply(&mut self.labels);
    }

    pub(crate) fn recorded(prefer: bool) -> Self {
        let mut pod = Marked::new();
        let changes =
            pod.with(|pod| record(pod, DeletionRequest::new(DeletionKind::Evict, "jane", NOW), prefer));
        pod.write(&changes);
        pod
    }
}

#[test]
fn a_request_begins_and_a_cancel_leaves_nothing() {
    for cost in [None, Some("5")] {
        let mut pod = Marked::new();
        pod.annotations.extend(cost.map(|cost| (keys::POD_DELETION_COST.to_owned(), cost.to_owned())));
        pod.engine();
        let before = pod.clone();
        let changes =
            pod.with(|pod| record(pod, DeletionRequest::new(DeletionKind::Delete, "jane", NOW), true));
        pod.write(&changes);
        assert_eq!(pod.intent(), DeletionIntent::Underway);
        assert_eq!(pod.annotations[keys::POD_DELETION_COST], "-2147483648");
        assert!(pod.labels.contains_key(&Stage::PreChecked.key("pod-delete")), "begun in the same write");
        let changes = pod.with(cancel);
        pod.write(&changes);
        let left = Operations::parse(&pod.labels);
        assert!(!left.any_live(), "{pod:?}");
        pod.labels
            .extend(before.labels.clone().into_iter().filter(|(key, _)| key == keys::SERVICE_AVAILABLE));
        assert_eq!(pod, before);
    }
}

#[test]
fn a_cancel_leaves_the_announcement_of_another_operation() {
    let with_other = |is_preparing: bool| {
        let mut pod = Marked::new();
        pod.labels.insert(Stage::Operating.key("set"), "1".to_owned());
        pod.labels.insert(Stage::OperationType.key("set"), "scale-in".to_owned());
        if is_preparing {
            pod.labels.insert(keys::PREPARING_TO_DELETE.to_owned(), "1".to_owned());
        }
        pod.engine();
        let request = DeletionRequest::new(DeletionKind::Evict, "jane", NOW);
        pod.write(&pod.with(|pod| record(pod, request, false)));
        pod
    };
    let left = |pod: &mut Marked| {
        pod.write(&pod.with(cancel));
        assert_eq!(pod.intent(), DeletionIntent::None, "{pod:?}");
        pod.labels.get(keys::PREPARING_TO_DELETE).cloned()
    };
    assert_eq!(left(&mut with_other(true)).as_deref(), Some("1"), "it is that of the other operation");
    assert_eq!(left(&mut with_other(false)), None, "the request has set it");
    // A delete takes the eviction over.
    let mut joined = with_other(true);
    let delete = DeletionRequest::new(DeletionKind::Delete, "joe", NOW);
    let request = joined.deletion_request().unwrap().joined_by(&delete, false).unwrap();
    joined.write(&replace(&request));
    assert_eq!(left(&mut joined).as_deref(), Some("1"));
    // The other operation ends first, while the request is postponed.
    let mut alone = with_other(true);
    let request = alone.deletion_request().unwrap();
    alone.write(&alone.with(|pod| postpone(pod, &request, UnixNanos(99))));
    alone.labels.insert(Stage::UndoOperationType.key("set"), "scale-in".to_owned());
    alone.engine();
    assert_eq!(left(&mut alone), None, "nothing is announced any more");
}

#[test]
fn every_way_to_take_a_request_back_is_seen() {
    let cancelled = |change: fn(&mut Marked), expected| {
        let mut pod = Marked::recorded(false);
        change(&mut pod);
        assert_eq!(pod.intent(), DeletionIntent::Cancelled(expected), "{pod:?}");
        let changes = pod.with(cancel);
        pod.write(&changes);
        assert_eq!(pod.intent(), DeletionIntent::None, "{pod:?}");
        assert!(pod.annotations.is_empty(), "{pod:?}");
    };
    cancelled(|pod| drop(pod.labels.remove(keys::TO_DELETE)), CancelledBy::Label);
    cancelled(|pod| drop(pod.annotations.remove(keys::DELETION_REQUEST)), CancelledBy::Annotation);
    let garbage = |pod: &mut Marked| {
        pod.annotations.insert(keys::DELETION_REQUEST.to_owned(), "garbage".to_owned());
    };
    cancelled(garbage, CancelledBy::Annotation);
    let both = |pod: &mut Marked| {
        pod.annotations.remove(keys::DELETION_REQUEST);
        pod.labels.remove(keys::TO_DELETE);
    };
    cancelled(both, CancelledBy::Annotation);
    // Everybody who may write the pod can change the label and the time of the request.
    let after_label = |pod: &mut Marked| {
        pod.labels.insert(keys::TO_DELETE.to_owned(), "2".to_owned());
        pod.annotations.remove(keys::DELETION_REQUEST);
    };
    cancelled(after_label, CancelledBy::Annotation);
    let after_time = |pod: &mut Marked| {
        pod.annotations.insert(keys::DELETE_TIMESTAMP.to_owned(), "0".to_owned());
        pod.annotations.remove(keys::DELETION_REQUEST);
    };
    cancelled(after_time, CancelledBy::Annotation);
    // A time that is left would cancel the next request.
    let both_of_postponed = |pod: &mut Marked| {
        let request = pod.deletion_request().unwrap();
        pod.write(&pod.with(|pod| postpone(pod, &request, UnixNanos(99))));
        pod.annotations.remove(keys::DELETION_REQUEST);
        pod.labels.remove(keys::TO_DELETE);
    };
    cancelled(both_of_postponed, CancelledBy::Annotation);
    let undo = |pod: &mut Marked| {
        pod.labels.insert(Stage::UndoOperationType.key("pod-delete"), "delete".to_owned());
    };
    cancelled(undo, CancelledBy::Operation);
    // The webhook has carried the undo out before the controller saw it.
    let undone = |pod: &mut Marked| {
        pod.labels.insert(Stage::UndoOperationType.key("pod-delete"), "delete".to_owned());
        pod.engine();
    };
    cancelled(undone, CancelledBy::Operation);
}

#[test]
fn a_label_by_others_begins() {
    let mut pod = Marked::new();
    pod.labels.insert(keys::TO_DELETE.to_owned(), "42".to_owned());
    assert_eq!(pod.intent(), DeletionIntent::Begin);
    // Also together with an operation that its setter began.
    pod.labels.insert(Stage::Operating.key("pod-delete"), "42".to_owned());
    pod.labels.insert(Stage::OperationType.key("pod-delete"), "delete".to_owned());
    assert_eq!(pod.intent(), DeletionIntent::Begin);
    let changes =
        pod.with(|pod| record(pod, DeletionRequest::new(DeletionKind::Delete, "?", UnixNanos(42)), false));
    pod.write(&changes);
    assert_eq!((pod.intent(), pod.labels[keys::TO_DELETE].as_str()), (DeletionIntent::Underway, "42"));
}

#[test]
fn an_operation_of_another_operator_is_not_changed() {
    let mut pod = Marked::new();
    pod.labels.insert(Stage::Operating.key("pod-delete"), "1".to_owned());
    pod.labels.insert(Stage::OperationType.key("pod-delete"), "delete".to_owned());
    assert_eq!(pod.intent(), DeletionIntent::None);
}

#[test]
fn a_request_that_is_put_off_stays_and_the_operation_goes() {
    let mut pod = Marked::recorded(false);
    let request = pod.deletion_request().unwrap();
    let changes = pod.with(|pod| postpone(pod, &request, UnixNanos(99)));
    pod.write(&changes);
    assert_eq!(pod.intent(), DeletionIntent::Postponed(UnixNanos(99)));
    assert!(!Operations::parse(&pod.labels).any_live());
    assert_eq!(pod.deletion_request().unwrap().times_postponed, 1);
    pod.labels.remove(keys::TO_DELETE);
    assert_eq!(pod.intent(), DeletionIntent::Cancelled(CancelledBy::Label));
}

#[test]
fn a_delete_that_joins_a_postponed_eviction_begins_at_once() {
    let delete = DeletionRequest::new(DeletionKind::Delete, "joe", NOW);
    let mut pod = Marked::recorded(false);
    let joined = pod.deletion_request().unwrap().joined_by(&delete, false).unwrap();
    assert!(pod.with(|pod| join(pod, &joined, NOW)).labels.is_empty(), "the operation has begun");

    let request = pod.deletion_request().unwrap();
    let changes = pod.with(|pod| postpone(pod, &request, UnixNanos(99)));
    pod.write(&changes);
    assert_eq!(pod.intent(), DeletionIntent::Postponed(UnixNanos(99)));
    let joined = pod.deletion_request().unwrap().joined_by(&delete, false).unwrap();
    let changes = pod.with(|pod| join(pod, &joined, NOW));
    pod.write(&changes);
    assert_eq!(pod.intent(), DeletionIntent::Underway);
    assert_eq!(pod.deletion_request().unwrap().requested_by, "joe");
}

proptest! {
    /// Whatever marks are there, what follows from them comes to rest, and what is at rest is either underway or
    /// nothing.
    #[test]
    fn any_marks_come_to_rest(
        label in prop::option::of(0i64..2),
        stamp in prop::option::of(0i64..2),
        has_request in any::<bool>(),
        operating in any::<bool>(),
        typed in any::<bool>(),
        undo in any::<bool>(),
        granted in any::<bool>(),
    ) {
        let mut pod = Marked::new();
        let mut set = |key: String, there: bool, value: &str| {
            if there {
                pod.labels.insert(key, value.to_owned());
            }
        };
        set(keys::TO_DELETE.to_owned(), label.is_some(), &label.unwrap_or_default().to_string());
        set(Stage::Operating.key("pod-delete"), operating, "1");
        set(Stage::OperationType.key("pod-delete"), typed, "delete");
        set(Stage::UndoOperationType.key("pod-delete"), undo, "delete");
        set(Stage::Operate.key("pod-delete"), granted, "1");
        pod.annotations.extend(stamp.map(|stamp| (keys::DELETE_TIMESTAMP.to_owned(), stamp.to_string())));
        if has_request {
            let text = DeletionRequest::new(DeletionKind::Delete, "jane", NOW).to_text();
            pod.annotations.insert(keys::DELETION_REQUEST.to_owned(), text);
        }
        for round in 0.. {
            prop_assert!(round < 4, "no rest: {:?}", pod);
            let changes = match pod.intent() {
                DeletionIntent::Begin => pod.with(|pod| record(pod, DeletionRequest::new(DeletionKind::Delete, "?", NOW), true)),
                DeletionIntent::Cancelled(_) => pod.with(cancel),
                DeletionIntent::Underway | DeletionIntent::None => break,
                DeletionIntent::Postponed(until) => return Err(TestCaseError::fail(format!("put off until {until}"))),
            };
            prop_assert!(!changes.is_empty());
            pod.write(&changes);
        }
        let is_marked = pod.labels.contains_key(keys::TO_DELETE) || pod.annotations.contains_key(keys::DELETION_REQUEST);
        prop_assert_eq!(is_marked, pod.intent() == DeletionIntent::Underway, "{:?}", pod);
    }
}
