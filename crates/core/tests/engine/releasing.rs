//! Podward goes away: what is taken off pods, what stays, and that it comes back to them.

mod properties;

use std::collections::BTreeMap;

use podward_core::ConditionStatus;
use podward_core::busy::HIGHEST_COST;
use podward_core::deletion::request::{DeletionKind, DeletionMarks, DeletionRequest, record};
use podward_core::hooks::hook_finalizer;
use podward_core::keys::{self, Stage};
use podward_core::release::{DroppedRequest, OtherFinalizers, Release, ReleasePod, release};

use crate::hook_model::{done, hook};
use crate::model::Model;
use crate::words::{CONSUMER, Fixture, NOW, OPERATED, OPERATING, PREPARING, WAITING, off, on};

const FOREIGN_FINALIZER: &str = "example.com/not-ours";

/// A pod with its annotations.
#[derive(Clone, Debug, PartialEq)]
struct Whole {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    has_gate: bool,
    gate: Option<ConditionStatus>,
    terminating: bool,
    has_condition: bool,
    is_finished: bool,
}

impl Whole {
    fn of(fixture: Fixture) -> Self {
        Whole {
            labels: fixture.labels,
            annotations: BTreeMap::new(),
            finalizers: fixture.finalizers,
            has_gate: fixture.has_gate,
            gate: fixture.gate,
            terminating: fixture.terminating,
            has_condition: true,
            is_finished: false,
        }
    }

    fn with_request(mut self, cost: Option<&str>) -> Self {
        self.annotations.extend(cost.map(|cost| (keys::POD_DELETION_COST.to_owned(), cost.to_owned())));
        let carried = DeletionMarks {
            labels: &self.labels,
            request: None,
            delete_timestamp: None,
            deletion_cost: cost,
        };
        let changes = record(&carried, DeletionRequest::new(DeletionKind::Evict, "jane", NOW), true);
        changes.labels.apply(&mut self.labels);
        for (key, text) in changes.annotations {
            self.annotations.insert(key.to_owned(), text.unwrap());
        }
        self
    }

    fn release(&self, third_parties: OtherFinalizers) -> Release {
        let fixture = Fixture {
            labels: self.labels.clone(),
            annotation: self.annotations.get(keys::AVAILABLE_CONDITIONS).cloned(),
            hook_requests: self.annotations.get(keys::HOOK_REQUESTS).cloned(),
            finalizers: self.finalizers.clone(),
            has_gate: self.has_gate,
            gate: self.gate,
            ready: false,
            ready_since: None,
            terminating: self.terminating,
        };
        let subject = ReleasePod {
            pod: fixture.view(),
            annotations: &self.annotations,
            has_condition: self.has_condition,
            is_finished: self.is_finished,
        };
        release(&subject, third_parties)
    }

    fn after(&self, release: &Release) -> Self {
        let mut after = self.clone();
        after.labels.retain(|key, _| !release.labels.contains(key));
        for (key, text) in &release.annotations {
            match text {
                Some(text) => after.annotations.insert((*key).to_owned(), text.clone()),
                None => after.annotations.remove(*key),
            };
        }
        after.finalizers.retain(|finalizer| !release.finalizers.contains(finalizer));
        if release.opens_gate {
            after.gate = Some(ConditionStatus::True);
        }
        after.has_condition &= !release.removes_condition;
        after
    }

    fn released(&self) -> Self {
        self.after(&self.release(OtherFinalizers::Keep))
    }
}

#[test]
fn operations_lose_what_podward_wrote_and_keep_their_announcement() {
    for (words, left) in [
        ("SA", ""),
        (PREPARING, "operating/x operation-type/x=T"),
        (OPERATING, "operating/x operation-type/x=T"),
        ("operating/x operation-type/x=T pre-check/x", "operating/x operation-type/x=T"),
        ("operating/x operation-type/x=T", "operating/x operation-type/x=T"),
        // Finished, or cancelled: as Podward would have done.
        (WAITING, ""),
        (OPERATED, ""),
        ("operating/x operation-type/x=T operate/x undo-operation-type/x=T", ""),
        ("undo-operation-type/x=T", ""),
        // Not an operation, so nothing that Podward would end.
        ("operation-type/x=T", "operation-type/x=T"),
        ("SA creating stay-offline completing", "creating stay-offline completing"),
    ] {
        let after = Whole::of(off(words)).released();
        let words = Fixture { labels: after.labels, ..off("") };
        words.expect(left, "left");
    }
}

#[test]
fn an_interrupted_operation_is_named_and_its_pod_serves_again() {
    let release = Whole::of(off(OPERATING)).release(OtherFinalizers::Keep);
    assert_eq!(release.interrupted, ["x"]);
    assert!(release.opens_gate && release.removes_condition);
    let waiting = Whole::of(on("operating/x operation-type/x=T pre-check/x")).release(OtherFinalizers::Keep);
    assert!(waiting.interrupted.is_empty() && !waiting.opens_gate, "it had not begun: {waiting:?}");
}

#[test]
fn release_opens_the_gate_unless_that_has_no_effect_or_was_rejected() {
    let opens = |pod: Whole| pod.release(OtherFinalizers::Keep).opens_gate;
    assert!(opens(Whole::of(off(""))));
    assert!(opens(Whole::of(on("").gate(None))), "nobody has written it yet");
    assert!(!opens(Whole::of(on(""))), "it is open");
    assert!(!opens(Whole::of(off("").without_gate())));
    assert!(!opens(Whole::of(off("").terminating())));
    assert!(!opens(Whole { is_finished: true, ..Whole::of(off("")) }));
    let offline = Whole::of(off("stay-offline")).release(OtherFinalizers::Keep);
    assert!(!offline.opens_gate && offline.stays_offline);
    let mut opted_out = Whole::of(off(""));
    opted_out.labels.remove(keys::CONTROL_LABEL);
    assert!(opens(opted_out), "nobody looks after a pod whose label was taken off");
}

#[test]
fn a_recorded_request_is_dropped_and_the_cost_is_as_it_was() {
    for cost in [None, Some("7")] {
        let before = Whole::of(on("").held());
        let pod = before.clone().with_request(cost);
        let release = pod.release(OtherFinalizers::Keep);
        let Some(DroppedRequest { request: Some(request) }) = &release.dropped_request else {
            panic!("{release:?}");
        };
        assert_eq!((request.kind, &*request.requested_by), (DeletionKind::Evict, "jane"));
        assert!(release.interrupted.is_empty(), "its operation is dropped, not interrupted: {release:?}");
        let after = pod.after(&release);
        assert_eq!(after.annotations.get(keys::POD_DELETION_COST).map(String::as_str), cost);
        assert_eq!(after.annotations.len(), usize::from(cost.is_some()));
        assert_eq!(after.labels, before.labels);
    }
    let unreadable = BTreeMap::from([(keys::DELETION_REQUEST.to_owned(), "?".to_owned())]);
    let pod = Whole { annotations: unreadable, ..Whole::of(on("")) };
    assert_eq!(pod.release(OtherFinalizers::Keep).dropped_request, Some(DroppedRequest { request: None }));
    assert!(pod.released().annotations.is_empty());
    let terminating = Whole::of(on("").terminating()).with_request(None);
    assert_eq!(terminating.release(OtherFinalizers::Keep).dropped_request, None, "it has come true");
}

#[test]
fn the_cost_of_a_busy_pod_is_as_it_was_and_no_history_is_left() {
    let annotations = |cost: &str| {
        BTreeMap::from([
            (keys::POD_DELETION_COST.to_owned(), cost.to_owned()),
            (keys::IDLE_DELETION_COST.to_owned(), r#"{"cost":"5","since":7}"#.to_owned()),
            (keys::HISTORY.to_owned(), "[]".to_owned()),
        ])
    };
    let cost = |cost: &str| BTreeMap::from([(keys::POD_DELETION_COST.to_owned(), cost.to_owned())]);
    let busy = Whole { annotations: annotations(HIGHEST_COST), ..Whole::of(on("")) };
    assert_eq!(busy.released().annotations, cost("5"));
    let set_since = Whole { annotations: annotations("3"), ..Whole::of(on("")) };
    assert_eq!(set_since.released().annotations, cost("3"));
    // Its deletion was requested while it was busy.
    let idle = annotations("").remove(keys::IDLE_DELETION_COST).unwrap();
    let mut held = Whole::of(on("")).with_request(Some(HIGHEST_COST));
    held.annotations.insert(keys::IDLE_DELETION_COST.to_owned(), idle);
    assert_eq!(held.released().annotations, cost("5"));
}

#[test]
fn requests_of_other_writers_are_kept() {
    let asked = Whole::of(on("").labelled(keys::TO_DELETE, "1"));
    assert!(asked.released().labels.contains_key(keys::TO_DELETE), "a request that nobody has recorded");
    let theirs = Whole::of(on("operating/pod-delete operation-type/pod-delete=delete"));
    assert_eq!(theirs.released().labels, theirs.labels, "an operation of somebody who deletes by himself");
}

#[test]
fn release_removes_finalizers_of_hooks_and_on_request_those_of_others() {
    let mut pod = Whole::of(on("").held());
    pod.finalizers.extend([hook_finalizer("mesh"), FOREIGN_FINALIZER.to_owned()]);
    let kept = pod.release(OtherFinalizers::Keep);
    assert_eq!(
        (&*kept.finalizers, &*kept.third_parties),
        (&[hook_finalizer("mesh")][..], &[CONSUMER.to_owned()][..])
    );
    let removed = pod.release(OtherFinalizers::Remove);
    assert!(removed.third_parties.is_empty());
    assert_eq!(pod.after(&removed).finalizers, [FOREIGN_FINALIZER]);
}

#[test]
fn a_reinstall_takes_the_pod_in_again() {
    for lets_go in [true, false] {
        let mut model = Model::created(true, true);
        model.register(hook("mesh"));
        let serve = |model: &mut Model| {
            for _ in 0..4 {
                model.settle();
                model.answer("mesh", &done());
            }
            model.settle();
        };
        serve(&mut model);
        let in_service = model.pod.clone();
        assert!(in_service.finalizers.contains(&hook_finalizer("mesh")));
        assert!(in_service.labels.contains_key(keys::SERVICE_AVAILABLE));

        model.begin("x", "T");
        if lets_go {
            serve(&mut model);
        } else {
            model.settle();
        }
        // What the controller remembers goes with it, and so does the webhook.
        model.webhook = false;
        model.hooks.board = crate::hook_model::Board::default();
        model.hooks.asked.clear();
        let annotations: BTreeMap<String, String> = [
            (keys::AVAILABLE_CONDITIONS, &model.pod.expected),
            (keys::HOOK_REQUESTS, &model.pod.asked),
            (keys::EVIDENCE, &model.pod.evidence),
            (keys::RESULT_REFUSED, &model.pod.refused),
        ]
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), text.clone()?)))
        .collect();
        let subject = ReleasePod {
            pod: model.pod.view(),
            annotations: &annotations,
            has_condition: false,
            is_finished: false,
        };
        let release = release(&subject, OtherFinalizers::Keep);
        assert_eq!(release.interrupted, ["x"]);
        model.pod.labels.retain(|key, _| !release.labels.contains(key));
        model.pod.finalizers.retain(|finalizer| !release.finalizers.contains(finalizer));
        model.pod.expected = match release.annotations.get(keys::AVAILABLE_CONDITIONS) {
            Some(text) => text.clone(),
            None => model.pod.expected,
        };
        (model.pod.asked, model.pod.evidence) = (None, None);
        model.pod.gate = Some(ConditionStatus::True);
        model.pod.version += 1;
        model.kubelet();
        assert!(model.pod.ready);

        // The operator goes on as if nothing had been, while Podward is back: the operation begins anew, and ends as
        // ever.
        model.webhook = true;
        serve(&mut model);
        assert!(model.pod.has(Stage::Operate, "x"), "{:?}", model.pod);
        model.finish_both("x");
        serve(&mut model);
        assert_eq!(model.pod.labels.keys().collect::<Vec<_>>(), in_service.labels.keys().collect::<Vec<_>>());
        assert_eq!(model.pod.finalizers.len(), in_service.finalizers.len());
        assert_eq!(model.pod.expected, in_service.expected);
    }
}
