//! Known faults of the reference implementation, each as a test that this one doesn't have it. The names in the comments are those
//! of the fault lists (2.7: d2 to e10, f1, f2; section 6: numbers; public issues: #). Those of several operations on one pod are in
//! `repeats`.

use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, NoRules, Operations, explain, on_update, plan_labels};

use crate::words::{EXPECTS_CONSUMER, Hold, NOW, off, on};
use crate::world::{Blockable, World};

pub(crate) const HELD_PRE: Blockable = Blockable { pre: true, post: false, refuses: false };
pub(crate) const HELD_POST: Blockable = Blockable { pre: false, post: true, refuses: false };
pub(crate) const FREE: Blockable = Blockable { pre: false, post: false, refuses: false };

/// A pod whose operation `a` has its permission. The pod's consumer is expected back at the end.
pub(crate) fn operating(webhook: bool) -> World {
    let mut world = World::in_service(true, true);
    world.webhook = webhook;
    world.begin("a", "update");
    world.settle();
    assert!(world.pod.has(Stage::Operate, "a"));
    world
}

#[track_caller]
pub(crate) fn comes_to_rest_in_service(world: &mut World) {
    world.checks = FREE;
    world.settle();
    assert_eq!(world.pod.protocol_labels(), [SERVICE_AVAILABLE]);
    assert_eq!(world.pod.gate, Some(ConditionStatus::True));
}

#[track_caller]
pub(crate) fn never_on_since(world: &World, version: u64) {
    for stored in world.history.iter().filter(|stored| stored.version >= version) {
        assert_ne!(stored.gate, Some(ConditionStatus::True), "in service in mid-operation: {stored:?}");
    }
}

/// Brings `a` from `operate` to where it is judged (`post-check`), or further to where its consumer comes back (`completing`).
pub(crate) fn end_a(world: &mut World, completing: bool) {
    if !completing {
        world.checks = HELD_POST;
        world.finish("a");
        world.settle();
        assert!(world.pod.has(Stage::PostCheck, "a"));
        world.checks = FREE;
        return;
    }
    world.finish("a");
    // Without the webhook the operation ends in one write, and the gate turns in the next.
    world.reconcile_latest();
    world.reconcile_latest();
    world.kubelet();
    assert!(world.pod.has(Stage::Completing, "a") && world.pod.gate == Some(ConditionStatus::True));
}

/// e1: a cancel whose value is not the type.
#[test]
fn an_undo_with_another_value_is_carried_out() {
    let mut world = operating(true);
    world.undo("a", "something else");
    comes_to_rest_in_service(&mut world);
}

/// e2: the type is taken away first, `operating` in a later write.
#[test]
fn a_type_that_was_taken_away_early_does_not_block_the_finish() {
    for webhook in [true, false] {
        let mut world = operating(webhook);
        world.write(|pod| {
            pod.labels.remove(&Stage::OperationType.key("a"));
        });
        world.settle();
        assert!(world.pod.has(Stage::Operate, "a"), "the permission stands");
        world.checks = HELD_POST;
        world.finish("a");
        world.settle();
        assert_eq!(
            world.pod.labels[&Stage::DoneOperationType.key("a")],
            "update",
            "the permission named the type"
        );
        comes_to_rest_in_service(&mut world);
    }
}

/// e3: the same id goes on with another type.
#[test]
fn a_permission_is_not_inherited_by_another_type() {
    for webhook in [true, false] {
        let mut world = operating(webhook);
        let granted = world.pod.version;
        world.checks = HELD_PRE;
        world.begin("a", "scale-in");
        world.settle();
        assert!(!world.pod.has(Stage::Operate, "a"), "it is checked anew");
        world.checks = FREE;
        world.settle();
        assert!(world.pod.has(Stage::Operate, "a"));
        never_on_since(&world, granted);
        assert!(!Operations::parse(&world.pod.labels).permits("update"), "the old permission is gone");
        world.finish("a");
        comes_to_rest_in_service(&mut world);
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
        let mut world = World::in_service(true, true);
        world.checks = Blockable { pre: blocked, ..FREE };
        world.webhook = webhook;
        world.begin("a", "update");
        world.reconcile_latest();
        assert_eq!(world.pod.has(Stage::Preparing, "a"), !blocked);
        if both {
            world.finish_both("a");
        } else {
            world.finish("a");
        }
        comes_to_rest_in_service(&mut world);
    }
}

/// e8: `operating` without a type waits for ever, and nobody says why.
#[test]
fn an_announcement_without_a_type_is_told_about_and_blocks_nothing() {
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
    let mut world = World::created(true, true);
    world.settle();
    let version = world.pod.version;
    for _ in 0..5 {
        world.settle();
    }
    assert_eq!(world.pod.version, version, "at rest is at rest");
}

/// 26: nothing orders operations of different types. Here a check may keep one type waiting while another is at work, and says so;
/// what it keeps waiting neither gets a permission nor keeps the others from theirs.
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
