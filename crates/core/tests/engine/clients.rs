//! The client library that operators of PodOpsLifecycle use (2.8 of the reference's algorithms), against the engine.
//! Each call is one update of the object that the operator read.

use podward_core::NoRules;
use podward_core::keys::{Key, SERVICE_AVAILABLE, Stage};

use crate::words::{Fixture, off, on};

/// One operator.
struct Client {
    id: &'static str,
    operation_type: &'static str,
}

const UPDATE: Client = Client { id: "collaset", operation_type: "update" };
const SCALE_IN: Client = Client { id: "collaset", operation_type: "scale-in" };
const RESTART: Client = Client { id: "job", operation_type: "restart" };

impl Client {
    fn is_during_ops(&self, pod: &Fixture) -> bool {
        let operation_type = pod.labels.get(&Stage::OperationType.key(self.id));
        pod.labels.contains_key(&Stage::Operating.key(self.id))
            && operation_type.is_some_and(|value| value == self.operation_type)
    }

    /// Refused while another id has the same type.
    fn may_begin(&self, pod: &Fixture) -> bool {
        !pod.labels.iter().any(|(key, value)| {
            matches!(Key::parse(key), Key::Stage(Stage::OperationType, id) if id != self.id)
                && value == self.operation_type
        })
    }

    /// Sets what is missing; no update when nothing is.
    fn begin(&self, pod: &Fixture) -> Fixture {
        assert!(self.may_begin(pod), "the type is taken: {:?}", pod.words());
        let mut write = String::new();
        if !pod.labels.contains_key(&Stage::Operating.key(self.id)) {
            write.push_str(&format!("+operating/{} ", self.id));
        }
        if pod.labels.get(&Stage::OperationType.key(self.id)).is_none_or(|value| value != self.operation_type)
        {
            write.push_str(&format!("+operation-type/{}={}", self.id, self.operation_type));
        }
        if write.is_empty() { pod.clone() } else { pod.written(&write) }
    }

    fn begin_with_cleaning_old(&self, pod: &Fixture) -> Fixture {
        if pod.labels.contains_key(&Stage::Operating.key(self.id)) {
            self.begin(&self.undo(pod))
        } else {
            self.begin(pod)
        }
    }

    fn allow_ops(&self, pod: &Fixture) -> bool {
        self.is_during_ops(pod) && pod.labels.contains_key(&Stage::Operate.key(self.id))
    }

    fn finish(&self, pod: &Fixture) -> Fixture {
        pod.written(&format!("-operating/{}", self.id))
    }

    fn undo(&self, pod: &Fixture) -> Fixture {
        pod.written(&format!("+undo-operation-type/{}={}", self.id, self.operation_type))
    }
}

/// Kubelet, traffic and controller do what there is to do.
fn settled(mut pod: Fixture) -> Fixture {
    for _ in 0..8 {
        pod = pod.reconciled(&NoRules);
        if let Some(gate) = pod.gate_write() {
            let write = format!("gate={}", gate.as_str());
            pod = pod.written(&write);
        }
        let on = !pod.has_gate || pod.gate == Some(podward_core::ConditionStatus::True);
        pod = pod.written(if on { "ready" } else { "not-ready" });
        let held = !pod.finalizers.is_empty();
        if pod.annotation.is_some() && on != held {
            pod = pod.written(if on { "+held" } else { "-held" });
        }
    }
    pod
}

fn in_service() -> Fixture {
    settled(on("").expecting().held())
}

#[test]
fn begin_allow_finish() {
    let pod = in_service();
    pod.expect("SA", "in service");
    assert!(!UPDATE.is_during_ops(&pod) && !UPDATE.allow_ops(&pod));
    let pod = UPDATE.begin(&pod);
    pod.expect(
        "SA operating/collaset operation-type/collaset=update pre-check/collaset",
        "announced in the same write",
    );
    assert!(UPDATE.is_during_ops(&pod) && !UPDATE.allow_ops(&pod));
    assert_eq!(UPDATE.begin(&pod).labels, pod.labels, "begin again is no update");
    let pod = settled(pod);
    assert!(UPDATE.allow_ops(&pod));
    assert_eq!(UPDATE.begin(&pod).labels, pod.labels, "nor is it one later");
    assert!(pod.labels.contains_key(&Stage::OperationType.key("collaset")), "the type stays until Finish");
    let pod = UPDATE.finish(&pod);
    pod.expect(
        "operated/collaset done-operation-type/collaset=update post-check/collaset",
        "finished in the same write",
    );
    assert!(!UPDATE.is_during_ops(&pod) && !UPDATE.allow_ops(&pod));
    settled(pod).expect("SA", "nothing is left");
}

#[test]
fn operate_carries_the_time_that_a_delay_is_counted_from() {
    let pod = settled(UPDATE.begin(&in_service()));
    pod.labels[&Stage::Operate.key("collaset")].parse::<i64>().unwrap();
}

#[test]
fn extras_of_begin_and_finish_stay_the_operators() {
    let deleting = "podopslifecycle.kusionstack.io/preparing-to-delete";
    let pod =
        settled(UPDATE.begin(
            &in_service().labelled(deleting, "1").labelled("collaset.kusionstack.io/instance-id", "7"),
        ));
    assert!(UPDATE.allow_ops(&pod));
    assert_eq!(pod.labels[deleting], "1", "while the operation runs");
    let pod = settled(UPDATE.undo(&pod));
    assert_eq!(pod.labels["collaset.kusionstack.io/instance-id"], "7");
    // It says what the operation ends with. The clients set it again when they begin another one.
    assert!(!pod.labels.contains_key(deleting));
}

#[test]
fn undo_in_every_phase_is_carried_out_within_its_write() {
    let begun = UPDATE.begin(&in_service());
    UPDATE.undo(&begun).expect("SA", "before permission: never out of service");
    let preparing = begun.reconciled(&NoRules);
    assert!(preparing.labels.contains_key(&Stage::Preparing.key("collaset")));
    let operating = settled(begun);
    let operated = UPDATE.finish(&operating);
    let completing = operated.reconciled(&NoRules);
    assert!(completing.labels.contains_key(&Stage::Completing.key("collaset")));
    for pod in [preparing, operating, operated, completing] {
        let undone = UPDATE.undo(&pod);
        undone.expect("", "the returned object has nothing left of it");
        settled(undone).expect("SA", "and the pod comes back");
    }
}

#[test]
fn begin_with_cleaning_old_begins_on_the_object_that_undo_returned() {
    let begun = UPDATE.begin(&in_service());
    for pod in [begun.clone(), begun.reconciled(&NoRules), settled(begun)] {
        let again = SCALE_IN.begin_with_cleaning_old(&pod);
        let left: Vec<String> = again.words().into_iter().filter(|word| word != "SA").collect();
        assert_eq!(
            left,
            ["operating/collaset", "operation-type/collaset=scale-in", "pre-check/collaset"],
            "nothing of the old run is inherited from {:?}",
            pod.words()
        );
        assert!(SCALE_IN.allow_ops(&settled(again)));
    }
}

#[test]
fn begin_with_cleaning_old_sends_no_undo_to_a_run_that_is_done() {
    // The library looks at `operating` alone, so a run that is being completed is begun again without an undo.
    let operated = UPDATE.finish(&settled(UPDATE.begin(&in_service())));
    let completing = operated.reconciled(&NoRules);
    for (pod, phase) in [(&operated, "post-check"), (&completing, "completing")] {
        let again = UPDATE.begin_with_cleaning_old(pod);
        assert!(again.labels.contains_key(&Stage::PreCheck.key("collaset")), "checked anew in {phase}");
        assert!(!UPDATE.allow_ops(&again), "{phase}");
        let operating = settled(again);
        assert!(UPDATE.allow_ops(&operating));
        settled(UPDATE.finish(&operating)).expect("SA", phase);
    }
}

#[test]
fn a_type_is_free_for_others_once_its_operation_is_done() {
    let other = Client { id: "other", operation_type: "restart" };
    let operating = settled(RESTART.begin(&in_service()));
    assert!(!other.may_begin(&operating));
    let done = RESTART.finish(&operating);
    assert!(other.may_begin(&done), "done, though not yet cleaned up");
    assert!(other.may_begin(&settled(done)));
}

#[test]
fn operators_that_share_a_pod() {
    let pod = settled(RESTART.begin(&UPDATE.begin(&in_service())));
    assert!(UPDATE.allow_ops(&pod) && RESTART.allow_ops(&pod));
    let pod = settled(UPDATE.finish(&pod));
    assert!(!UPDATE.is_during_ops(&pod), "the first is done");
    assert!(RESTART.allow_ops(&pod), "the second works on");
    settled(RESTART.finish(&pod)).expect("SA", "both are over");
}

#[test]
fn a_pod_that_is_deleted_for_its_operation_needs_no_finish() {
    let pod = settled(SCALE_IN.begin(&in_service()));
    assert!(SCALE_IN.allow_ops(&pod));
    let before = pod.labels.clone();
    let gone = pod.terminating().reconciled(&NoRules);
    assert_eq!(gone.labels, before);
    assert!(!gone.labels.contains_key(SERVICE_AVAILABLE));
    assert_eq!(off("").terminating().gate_write(), None);
}
