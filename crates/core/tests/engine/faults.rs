//! Known faults of the reference implementation, each as a test that this one doesn't have it. The names in the
//! comments are those of the fault lists (2.7: d2 to e10, f1, f2; section 6: numbers; public issues: #). Those of
//! several operations on one pod are in `repeats`.

use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, NoRules, Operations, explain, on_update, plan_labels};

use crate::model::{Blockable, Model};
use crate::words::{EXPECTS_CONSUMER, Hold, NOW, off, on};

pub(crate) const HELD_PRE: Blockable = Blockable { pre: true, post: false, refuses: false };
pub(crate) const HELD_POST: Blockable = Blockable { pre: false, post: true, refuses: false };
pub(crate) const FREE: Blockable = Blockable { pre: false, post: false, refuses: false };

/// A pod whose operation `a` has its permission. The pod's consumer is expected back at the end.
pub(crate) fn operating(webhook: bool) -> Model {
    let mut model = Model::in_service(true, true);
    model.webhook = webhook;
    model.begin("a", "update");
    model.settle();
    assert!(model.pod.has(Stage::Operate, "a"));
    model
}

#[track_caller]
pub(crate) fn comes_to_rest_in_service(model: &mut Model) {
    model.checks = FREE;
    model.settle();
    assert_eq!(model.pod.protocol_labels(), [SERVICE_AVAILABLE]);
    assert_eq!(model.pod.gate, Some(ConditionStatus::True));
}

#[track_caller]
pub(crate) fn never_on_since(model: &Model, version: u64) {
    for stored in model.history.iter().filter(|stored| stored.version >= version) {
        assert_ne!(stored.gate, Some(ConditionStatus::True), "in service in mid-operation: {stored:?}");
    }
}

/// Brings `a` from `operate` to where it is judged (`post-check`), or further to where its consumer comes back
/// (`completing`).
pub(crate) fn end_a(model: &mut Model, completing: bool) {
    if !completing {
        model.checks = HELD_POST;
        model.finish("a");
        model.settle();
        assert!(model.pod.has(Stage::PostCheck, "a"));
        model.checks = FREE;
        return;
    }
    model.finish("a");
    // Without the webhook the operation ends in one write, and the gate turns in the next.
    model.reconcile_latest();
    model.reconcile_latest();
    model.kubelet();
    assert!(model.pod.has(Stage::Completing, "a") && model.pod.gate == Some(ConditionStatus::True));
}

/// e1: a cancel whose value is not the type.
#[test]
fn an_undo_with_another_value_is_carried_out() {
    let mut model = operating(true);
    model.undo("a", "something else");
    comes_to_rest_in_service(&mut model);
}

/// e2: the type is taken away first, `operating` in a later write.
#[test]
fn a_type_that_was_taken_away_early_does_not_block_the_finish() {
    for webhook in [true, false] {
        let mut model = operating(webhook);
        model.write(|pod| {
            pod.labels.remove(&Stage::OperationType.key("a"));
        });
        model.settle();
        assert!(model.pod.has(Stage::Operate, "a"), "the permission stands");
        model.checks = HELD_POST;
        model.finish("a");
        model.settle();
        assert_eq!(
            model.pod.labels[&Stage::DoneOperationType.key("a")],
            "update",
            "the permission named the type"
        );
        comes_to_rest_in_service(&mut model);
    }
}

/// e3: the same id goes on with another type.
#[test]
fn a_permission_is_not_inherited_by_another_type() {
    for webhook in [true, false] {
        let mut model = operating(webhook);
        let granted = model.pod.version;
        model.checks = HELD_PRE;
        model.begin("a", "scale-in");
        model.settle();
        assert!(!model.pod.has(Stage::Operate, "a"), "it is checked anew");
        model.checks = FREE;
        model.settle();
        assert!(model.pod.has(Stage::Operate, "a"));
        never_on_since(&model, granted);
        assert!(!Operations::parse(&model.pod.labels).permits("update"), "the old permission is gone");
        model.finish("a");
        comes_to_rest_in_service(&mut model);
    }
}

/// d3, e7: `operating` is taken away before the permission came.
#[test]
fn a_wrong_cancel_leaves_no_orphans() {
    for (webhook, both, blocked) in [
        (true, true, true),
        (true, false, true),
        (false, true, true),
        (true, true, false),
        (true, false, false),
        (false, false, false),
    ] {
        let mut model = Model::in_service(true, true);
        model.checks = Blockable { pre: blocked, ..FREE };
        model.webhook = webhook;
        model.begin("a", "update");
        model.reconcile_latest();
        assert_eq!(model.pod.has(Stage::Preparing, "a"), !blocked);
        if both {
            model.finish_both("a");
        } else {
            model.finish("a");
        }
        comes_to_rest_in_service(&mut model);
    }
}

/// e8: `operating` without a type waits for ever, and nobody says why.
#[test]
fn an_announcement_without_a_type_is_reported_and_blocks_nothing() {
    let half = on("SA operating/x pre-check/x");
    let message = explain(&half.view(), &NoRules, &[]).message;
    assert!(message.contains(&Stage::OperationType.key("x")) && message.contains("missing"), "{message}");
    let other = half.written("+operating/y +operation-type/y=T").reconciled(&NoRules).written("gate=False");
    let done = other.written("-operating/y").reconciled(&NoRules).written("gate=True").reconciled(&NoRules);
    done.expect("SA operating/x pre-check/x", "another operation comes and goes");
}

/// 9: an annotation that can't be read fails every update, also the kubelet's.
#[test]
fn a_wrong_annotation_blocks_no_write() {
    for text in ["", "no JSON", "[]", r#"{"expectedFinalizers":[]}"#, r#"{"expectedFinalizers":{"a":1}}"#] {
        let idle = on("SA").annotated(text);
        assert!(on_update(Some(&idle.pod()), &idle.after("not-ready").pod(), NOW).0.is_empty(), "{text}");
        let working =
            off("operating/x operation-type/x=T permission/T pre-checked/x operate/x").annotated(text);
        working.written("-operating/x").expect(
            "operated/x done-operation-type/x=T post-check/x",
            "an operation goes on until somebody has to come back",
        );
        let message = explain(&working.view(), &NoRules, &[]).message;
        assert!(
            message.contains("available-conditions") && message.contains("until it is corrected"),
            "{message}"
        );
    }
    let mut completing = on("operated/x done-operation-type/x=T post-checked/x completing/x")
        .annotated("no JSON")
        .held()
        .reconciled(&NoRules);
    completing.annotation = Some(EXPECTS_CONSUMER.to_owned());
    completing.reconciled(&NoRules).expect("SA", "and ends once it is corrected");
}

/// 17: finalizers of a pod that was labelled late, or whose status was never written, are honoured.
#[test]
fn finalizers_count_without_a_condition() {
    let begun = on("SA operating/x operation-type/x=T");
    let late = begun.clone().without_gate().held().reconciled(&NoRules);
    late.expect("operating/x operation-type/x=T permission/T pre-checked/x preparing/x", "labelled late");
    late.written("-held")
        .expect("operating/x operation-type/x=T permission/T pre-checked/x operate/x", "it lets go");
    let fresh = begun.gate(None).reconciled(&NoRules);
    fresh.expect("operating/x operation-type/x=T permission/T pre-checked/x preparing/x", "never written");
    assert_eq!(fresh.gate_write(), Some(ConditionStatus::False));
}

/// 22: a pod that isn't Ready costs a write at every event.
#[test]
fn a_pod_that_is_not_ready_costs_no_write() {
    let pods =
        [on("").ready(false), on("").ready(false).expecting(), off("stay-offline"), off("").without_gate()];
    for pod in pods {
        assert!(plan_labels(&pod.view(), &NoRules, NOW).is_empty(), "{pod:?}");
        assert_eq!(pod.gate_write(), None);
    }
    let mut model = Model::created(true, true);
    model.settle();
    let version = model.pod.version;
    for _ in 0..5 {
        model.settle();
    }
    assert_eq!(model.pod.version, version, "at rest is at rest");
}

/// 26: nothing orders operations of different types. Here a check may keep one type waiting while another is at work,
/// and says so; what it keeps waiting neither gets a permission nor keeps the others from theirs.
#[test]
fn checks_can_order_operations_by_type() {
    let begun = on(
        "SA operating/x operation-type/x=update operating/y operation-type/y=delete pre-check/x pre-check/y",
    );
    let update_first = Hold { types: &["delete"], results: &[] };
    let working = begun.reconciled(&update_first).written("gate=False").written("not-ready");
    working.expect(
        "operating/x operation-type/x=update permission/update pre-checked/x operate/x \
         operating/y operation-type/y=delete pre-check/y",
        "the update works, the delete waits",
    );
    let message = explain(&working.view(), &update_first, &[]).message;
    assert!(
        message.contains("operation y (delete) waits for its pre-checks: the budget is used up"),
        "{message}"
    );
    let handed_over = working.written("-operating/x").reconciled(&NoRules);
    assert!(handed_over.words().contains("operate/y"), "{:?}", handed_over.words());
}
