//! Results that are refused, and whose operators are told so: by whom, until when, and how it ends.

use podward_core::hooks::{DeadlinePolicy, Hook, HookAnswer, HookPhase};
use podward_core::keys::Stage;
use podward_core::refusals::ResultRefusals;
use podward_core::{ConditionStatus, PostCheckRejection};

use crate::faults::{FREE, HELD_POST, comes_to_rest_in_service, operating};
use crate::hook_model::{done, hook};
use crate::model::{Blockable, Model};

const REFUSES: Blockable = Blockable { pre: false, post: false, refuses: true };
const RULE: &str = "rule web/errors";

/// A pod whose operation `a` is refused by a rule.
fn refused(webhook: bool) -> Model {
    let mut model = operating(webhook);
    model.checks = REFUSES;
    model.finish("a");
    model.settle();
    assert_refused(&model, &[RULE]);
    model
}

#[track_caller]
fn assert_refused(model: &Model, by: &[&str]) {
    let pod = &model.pod;
    let told = ResultRefusals::of(&pod.view());
    assert_eq!(told.of_operation("a").map(|refusal| refusal.by).collect::<Vec<_>>(), by, "{pod:?}");
    let since = told.of_operation("a").map(|refusal| refusal.since.to_string()).min();
    assert_eq!(pod.labels.get(&Stage::Rollback.key("a")), since.as_ref(), "{pod:?}");
    if !by.is_empty() {
        assert!(pod.has(Stage::PostCheck, "a") && pod.gate == Some(ConditionStatus::False), "{pod:?}");
    }
}

fn no() -> HookAnswer {
    HookAnswer::Rejected { reason: "too many errors".to_owned() }
}

/// A hook that judges results.
fn judge(name: &str) -> Hook {
    Hook {
        phases: vec![HookPhase::PostCheck],
        post_check_rejection: PostCheckRejection::Rollback,
        ..hook(name)
    }
}

/// A pod whose operation `a` is done, with these hooks, which haven't answered yet.
fn judged_by(hooks: impl IntoIterator<Item = Hook>) -> Model {
    let mut model = operating(true);
    hooks.into_iter().for_each(|hook| model.register(hook));
    model.finish("a");
    model.settle();
    assert!(model.pod.has(Stage::PostCheck, "a"));
    model
}

#[test]
fn the_operator_is_informed_once_in_the_write_of_the_refusal() {
    for webhook in [true, false] {
        let mut model = operating(webhook);
        model.checks = REFUSES;
        model.finish("a");
        let (seen, now) = (model.pod.clone(), model.now());
        let plan = model.hooks.plan(&seen.view(), &REFUSES, now);
        let told: Vec<_> = plan.refused.iter().map(|one| (one.id.as_str(), one.by.as_str())).collect();
        assert_eq!(told, [("a", RULE)]);
        assert_eq!(
            (plan.refused[0].reason.as_str(), plan.refused[0].operation_type.as_str()),
            ("too many errors", "update")
        );
        let said = plan.explain(&seen.view(), &REFUSES);
        assert_eq!(said.reason, "ResultRefused");
        for words in
            ["operation a (update) is done and its result is refused by rule web/errors", "begins a again"]
        {
            assert!(said.message.contains(words), "{}", said.message);
        }
        model.carry_out(&plan);
        assert_refused(&model, &[RULE]);
        assert!(!model.reconcile_latest(), "there is nothing more to write");
        let later = model.now();
        assert_eq!(model.hooks.plan(&model.pod.view(), &REFUSES, later).refused, []);
    }
}

#[test]
fn an_operation_continues_when_all_refusals_are_withdrawn() {
    let mut model = refused(true);
    model.checks = HELD_POST;
    model.settle();
    assert_refused(&model, &[RULE]);
    model.checks = FREE;
    model.reconcile_latest();
    assert!(!model.pod.has(Stage::Rollback, "a") && model.pod.refused.is_none(), "{:?}", model.pod);
    comes_to_rest_in_service(&mut model);
}

#[test]
fn begun_again_it_is_checked_anew() {
    for webhook in [true, false] {
        let mut model = refused(webhook);
        model.checks = Blockable { pre: true, ..REFUSES };
        model.begin("a", "update");
        assert_eq!(
            model.pod.has(Stage::Rollback, "a"),
            !webhook,
            "the webhook takes it away within the write"
        );
        model.settle();
        assert_refused(&model, &[]);
        assert!(model.pod.has(Stage::PreCheck, "a") && model.pod.gate == Some(ConditionStatus::False));
        model.checks = REFUSES;
        model.settle();
        assert!(model.pod.has(Stage::Operate, "a"));
        // What was done the second time is refused for itself, or accepted.
        let before = model.now;
        model.finish("a");
        model.settle();
        assert_refused(&model, &[RULE]);
        assert!(model.pod.labels[&Stage::Rollback.key("a")].parse::<i64>().unwrap() > before);
        model.begin("a", "update");
        model.settle();
        model.checks = FREE;
        model.finish("a");
        comes_to_rest_in_service(&mut model);
        assert_eq!(model.pod.refused, None);
    }
}

#[test]
fn a_cancel_leaves_nothing() {
    for webhook in [true, false] {
        let mut model = refused(webhook);
        model.undo("a", "update");
        model.settle();
        assert_eq!(model.pod.refused, None);
        comes_to_rest_in_service(&mut model);
    }
}

/// Of two operations that end together one is refused: the other waits for it, and isn't said to be refused.
#[test]
fn others_on_the_pod_are_not_refused_with_it() {
    let mut model = operating(true);
    model.begin("b", "restart");
    model.settle();
    let judge = Hook { operation_types: vec!["update".to_owned()], ..judge("judge") };
    model.register(judge);
    model.finish("a");
    model.finish("b");
    model.settle();
    model.answer("judge", &no());
    model.settle();
    assert_refused(&model, &["hook judge"]);
    assert!(model.pod.has(Stage::Completing, "b") && !model.pod.has(Stage::Rollback, "b"), "{:?}", model.pod);
    model.undo("a", "update");
    comes_to_rest_in_service(&mut model);
}

#[test]
fn a_hook_that_stops_answering_does_not_withdraw_its_refusal() {
    let mut model = judged_by([Hook { deadline_policy: DeadlinePolicy::Proceed, ..judge("judge") }]);
    assert_refused(&model, &[]);
    model.answer("judge", &no());
    model.settle();
    assert_refused(&model, &["hook judge"]);
    // Past its deadline, asked by a process that hasn't heard it, and taking its time.
    model.now += 100_000_000_000;
    model.settle();
    assert_refused(&model, &["hook judge"]);
    model.restart();
    assert!(!model.reconcile_latest(), "{:?}", model.pod);
    model.now += 100_000_000_000;
    model.settle();
    model.answer("judge", &HookAnswer::Open { message: "looks again".to_owned() });
    model.settle();
    assert_refused(&model, &["hook judge"]);
    model.answer("judge", &done());
    comes_to_rest_in_service(&mut model);
    assert_eq!(model.pod.refused, None);
}

#[test]
fn a_hook_that_is_not_asked_again_yet_does_not_withdraw_its_refusal() {
    let mut model = judged_by([judge("first"), Hook { order: 1, ..judge("second") }]);
    model.answer("first", &done());
    model.settle();
    model.answer("second", &no());
    model.settle();
    assert_refused(&model, &["hook second"]);
    model.restart();
    model.settle();
    assert_refused(&model, &["hook second"]);
    model.answer("first", &no());
    model.settle();
    assert_refused(&model, &["hook first", "hook second"]);
    model.answer("first", &done());
    model.settle();
    assert_refused(&model, &["hook second"]);
    model.deregister("second");
    comes_to_rest_in_service(&mut model);
}

#[test]
fn the_policy_hold_does_not_inform_the_operator() {
    let mut model = judged_by([Hook { post_check_rejection: PostCheckRejection::Hold, ..judge("judge") }]);
    model.answer("judge", &no());
    model.settle();
    assert_refused(&model, &[]);
    assert!(model.pod.has(Stage::PostCheck, "a"));
    // It may be told to at any time, and not to.
    model.register(judge("judge"));
    model.settle();
    assert_refused(&model, &["hook judge"]);
    model.register(Hook { post_check_rejection: PostCheckRejection::Hold, ..judge("judge") });
    model.settle();
    assert_refused(&model, &[]);
    model.answer("judge", &done());
    comes_to_rest_in_service(&mut model);
}

/// Somebody sets the label, or takes it away, or spoils the record: what is so is on the pod again with the next look.
#[test]
fn unknown_checks_refuse_nothing_and_accept_nothing() {
    let label = Stage::Rollback.key("a");
    let mut model = operating(true);
    model.write(|pod| drop(pod.labels.insert(label.clone(), "1".to_owned())));
    assert!(!model.pod.has(Stage::Rollback, "a") && model.pod.has(Stage::Operate, "a"), "{:?}", model.pod);
    model.checks = HELD_POST;
    model.finish("a");
    model.settle();
    model.write(|pod| drop(pod.labels.insert(label.clone(), "1".to_owned())));
    model.settle();
    assert_refused(&model, &[]);
    model.checks = REFUSES;
    model.settle();
    for spoil in [None, Some("garbage".to_owned())] {
        model.write(|pod| drop(pod.labels.remove(&label)));
        model.settle();
        assert_refused(&model, &[RULE]);
        model.write(|pod| pod.refused.clone_from(&spoil));
        model.settle();
        assert!(model.pod.has(Stage::Rollback, "a") && model.pod.refused.is_some(), "{:?}", model.pod);
        assert_eq!(ResultRefusals::of(&model.pod.view()).of_operation("a").count(), 1);
        model.write(|pod| drop(pod.labels.remove(&label)));
        model.settle();
    }
    model.checks = FREE;
    comes_to_rest_in_service(&mut model);
    assert_eq!(model.pod.refused, None);
}
