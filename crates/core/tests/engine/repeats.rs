//! Known faults of the reference implementation that need several operations on one pod, or one that is begun again.

use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, NoRules};

use crate::faults::{FREE, HELD_PRE, comes_to_rest_in_service, end_a, never_on_since, operating};
use crate::model::{Blockable, Model};
use crate::words::{COMPLETING, Hold, OPERATED, off, on};

/// d2, e6, e9, #248, 1: `b` begins while `a` is judged or completing.
#[test]
fn staggered_operations_end_in_service() {
    for (completing, webhook, both) in
        [(false, true, true), (false, false, false), (true, true, false), (true, false, true)]
    {
        let mut model = operating(webhook);
        end_a(&mut model, completing);
        model.begin("b", "restart");
        model.settle();
        assert!(model.pod.has(Stage::Operate, "b"), "e9: it gets its permission: {:?}", model.pod);
        let granted = model.history.iter().find(|stored| stored.has(Stage::Operate, "b")).unwrap().version;
        for _ in 0..3 {
            model.settle();
        }
        never_on_since(&model, granted);
        if both {
            model.finish_both("b");
        } else {
            model.finish("b");
        }
        never_on_since(&model, granted);
        comes_to_rest_in_service(&mut model);
    }
}

/// e6: there the way out of d2 is to undo one of the two. Here it is a cancel like any other.
#[test]
fn one_of_two_staggered_operations_may_be_undone() {
    for (completing, undone) in [(false, "a"), (false, "b"), (true, "a"), (true, "b")] {
        let mut model = operating(true);
        end_a(&mut model, completing);
        model.begin("b", "restart");
        model.settle();
        model.undo(undone, if undone == "a" { "update" } else { "restart" });
        model.settle();
        if undone == "a" {
            assert!(model.pod.has(Stage::Operate, "b"), "b works on");
            assert_eq!(model.pod.gate, Some(ConditionStatus::False));
            model.finish("b");
        }
        comes_to_rest_in_service(&mut model);
    }
}

/// #170, #298 and #248: who is preparing wins over who is completing, whatever the order of their ids.
#[test]
fn the_gate_does_not_flap_between_staggered_operations() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut model = Model::in_service(true, true);
        model.begin(first, "update");
        model.settle();
        model.finish(first);
        model.reconcile_latest();
        model.kubelet();
        model.begin(second, "restart");
        model.settle();
        let mut flips = model.history.windows(2).filter(|pair| pair[0].gate != pair[1].gate).count();
        for _ in 0..4 {
            model.settle();
        }
        flips -= model.history.windows(2).filter(|pair| pair[0].gate != pair[1].gate).count();
        assert_eq!(flips, 0, "at rest while {second} works");
        model.finish(second);
        comes_to_rest_in_service(&mut model);
    }
}

/// f1, f2, 1: the same id begun again before its last run was cleaned up.
#[test]
fn the_same_id_begun_again_is_checked_again_and_leaves_nothing() {
    for (completing, webhook) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut model = operating(webhook);
        end_a(&mut model, completing);
        model.checks = HELD_PRE;
        model.begin("a", "update");
        model.settle();
        assert!(
            !model.pod.has(Stage::Operate, "a") && !model.pod.has(Stage::PreChecked, "a"),
            "{:?}",
            model.pod
        );
        assert!(!model.pod.has(Stage::Completing, "a") && !model.pod.has(Stage::Operated, "a"));
        model.checks = FREE;
        model.settle();
        assert!(model.pod.has(Stage::Operate, "a"));
        model.finish("a");
        comes_to_rest_in_service(&mut model);

        model.checks = HELD_PRE;
        model.begin("a", "update");
        model.settle();
        assert!(!model.pod.has(Stage::PreChecked, "a"), "f2: the third time PreCheck is not skipped");
        assert!(model.pod.labels.contains_key(SERVICE_AVAILABLE), "in service while it waits");
    }
}

/// f1: there the pod goes into service under the second run. Here it stays out, also while the second run waits to be
/// checked: the first one's result was not judged.
#[test]
fn a_pod_without_a_checked_result_stays_out_of_service_while_its_operation_begins_again() {
    let mut model = operating(true);
    let granted = model.pod.version;
    end_a(&mut model, false);
    model.checks = Blockable { pre: true, post: true, refuses: false };
    model.begin("a", "update");
    model.settle();
    never_on_since(&model, granted);
    model.checks = FREE;
    model.settle();
    assert!(model.pod.has(Stage::Operate, "a"));
    never_on_since(&model, granted);
    model.finish("a");
    comes_to_rest_in_service(&mut model);
}

/// 1: the same id begun again after it was finished, while another operation holds the pod.
#[test]
fn an_id_that_waits_for_others_is_checked_again_when_it_begins_again() {
    let mut model = operating(true);
    model.begin("b", "restart");
    model.settle();
    let granted = model.pod.version;
    model.finish("a");
    model.settle();
    assert!(model.pod.has(Stage::Operate, "a") && model.pod.has(Stage::Operate, "b"));
    model.checks = HELD_PRE;
    model.begin("a", "update");
    assert!(!model.pod.has(Stage::Operate, "a"), "in the write that begins it");
    model.settle();
    assert!(!model.pod.has(Stage::PreChecked, "a"));
    model.finish("b");
    model.settle();
    never_on_since(&model, granted);
    model.checks = FREE;
    model.settle();
    assert!(model.pod.has(Stage::Operate, "a"));
    model.finish("a");
    comes_to_rest_in_service(&mut model);
}

/// f2: what the reference has left on a pod doesn't let the next run skip PreCheck.
#[test]
fn leftovers_of_an_earlier_run_are_not_inherited() {
    let leftovers = on("SA operation-type/x=T permission/T pre-checked/x");
    leftovers
        .written("+operating/x")
        .expect("SA operating/x operation-type/x=T pre-check/x", "begun in the first write that is seen");
    leftovers.reconciled(&NoRules).expect("SA", "or cleaned up before");
}

/// The type is known, so the operation can be checked. Without it, it would hold the pod for ever.
#[test]
fn an_id_that_is_begun_again_without_its_type_keeps_it() {
    let again = "operating/x operation-type/x=T pre-check/x preparing/x";
    off(OPERATED).written("+operating/x").expect(again, "during its post-check");
    off(OPERATED)
        .after("+operating/x")
        .reconciled(&Hold { types: &["T"], results: &[] })
        .expect(again, "no webhook");
    off(OPERATED)
        .written("+operating/x +operation-type/x=U")
        .expect("operating/x operation-type/x=U pre-check/x preparing/x", "another type");
    on(COMPLETING)
        .expecting()
        .written("+operating/x")
        .expect("operating/x pre-check/x", "it holds nothing: an incomplete announcement");
    let y = "operating/y operation-type/y=U pre-checked/y operate/y permission/U";
    off(&format!("pre-checked/x operate/x permission/T {y}"))
        .written("+operating/x")
        .expect(&format!("{again} {y}"), "while it waits for others");
}

/// e10, 2: the stages of several ids are told apart.
#[test]
fn pre_and_post_checks_of_different_ids_are_separate() {
    let both =
        off("operating/b operation-type/b=U pre-check/b operated/a done-operation-type/a=T post-check/a")
            .expecting();
    let hold = Hold { types: &["U"], results: &[] };
    both.reconciled(&hold).expect(
        "operating/b operation-type/b=U pre-check/b operated/a done-operation-type/a=T post-checked/a completing/a",
        "b is not marked by a's check",
    );
    let hold = Hold { types: &[], results: &["a"] };
    both.reconciled(&hold).expect(
        "operating/b operation-type/b=U permission/U pre-checked/b operate/b operated/a done-operation-type/a=T post-check/a",
        "nor a by b's",
    );
    for _ in 0..20 {
        assert_eq!(
            both.reconciled(&NoRules).labels,
            both.reconciled(&NoRules).labels,
            "2: no chance is in it"
        );
    }
}

/// d4, d6: what works there works here.
#[test]
fn operations_that_were_begun_together_share_one_way_out_and_in() {
    for both in [true, false] {
        let mut model = Model::in_service(true, true);
        model.begin("a", "update");
        model.begin("b", "restart");
        model.settle();
        assert!(model.pod.has(Stage::Operate, "a") && model.pod.has(Stage::Operate, "b"));
        for id in ["a", "b"] {
            if both {
                model.finish_both(id);
            } else {
                model.finish(id);
            }
            model.settle();
        }
        comes_to_rest_in_service(&mut model);
        let flips =
            model.history.windows(2).filter(|pair| pair[0].gate.is_some() && pair[0].gate != pair[1].gate);
        assert_eq!(flips.count(), 2, "off once, on once");
    }
}
