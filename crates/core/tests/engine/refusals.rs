//! Results that are refused, and whose operators are told so: by whom, until when, and how it ends.

use podward_core::hooks::{Answer, DeadlinePolicy, Hook, Phase};
use podward_core::keys::Stage;
use podward_core::refusals::Refusals;
use podward_core::{ConditionStatus, PostCheckRejection};

use crate::faults::{FREE, HELD_POST, comes_to_rest_in_service, operating};
use crate::hook_world::{done, hook};
use crate::world::{Blockable, World};

const REFUSES: Blockable = Blockable { pre: false, post: false, refuses: true };
const RULE: &str = "rule web/errors";

/// A pod whose operation `a` is refused by a rule.
fn refused(webhook: bool) -> World {
    let mut world = operating(webhook);
    world.checks = REFUSES;
    world.finish("a");
    world.settle();
    assert_refused(&world, &[RULE]);
    world
}

#[track_caller]
fn assert_refused(world: &World, by: &[&str]) {
    let pod = &world.pod;
    let told = Refusals::of(&pod.view());
    assert_eq!(told.of_operation("a").map(|refusal| refusal.by).collect::<Vec<_>>(), by, "{pod:?}");
    let since = told.of_operation("a").map(|refusal| refusal.since.to_string()).min();
    assert_eq!(pod.labels.get(&Stage::Rollback.key("a")), since.as_ref(), "{pod:?}");
    if !by.is_empty() {
        assert!(pod.has(Stage::PostCheck, "a") && pod.gate == Some(ConditionStatus::False), "{pod:?}");
    }
}

fn no() -> Answer {
    Answer::Rejected { reason: "too many errors".to_owned() }
}

/// A hook that judges results.
fn judge(name: &str) -> Hook {
    Hook { phases: vec![Phase::PostCheck], post_check_rejection: PostCheckRejection::Rollback, ..hook(name) }
}

/// A pod whose operation `a` is done, with these hooks, which haven't answered yet.
fn judged_by(hooks: impl IntoIterator<Item = Hook>) -> World {
    let mut world = operating(true);
    hooks.into_iter().for_each(|hook| world.register(hook));
    world.finish("a");
    world.settle();
    assert!(world.pod.has(Stage::PostCheck, "a"));
    world
}

#[test]
fn the_operator_is_told_in_the_write_that_finds_it_and_once() {
    for webhook in [true, false] {
        let mut world = operating(webhook);
        world.checks = REFUSES;
        world.finish("a");
        let (seen, now) = (world.pod.clone(), world.now());
        let plan = world.hooks.plan(&seen.view(), &REFUSES, now);
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
        world.carry_out(&plan);
        assert_refused(&world, &[RULE]);
        assert!(!world.reconcile_latest(), "there is nothing more to write");
        let later = world.now();
        assert_eq!(world.hooks.plan(&world.pod.view(), &REFUSES, later).refused, []);
    }
}

#[test]
fn it_goes_on_when_nobody_refuses_any_more() {
    let mut world = refused(true);
    world.checks = HELD_POST;
    world.settle();
    assert_refused(&world, &[RULE]);
    world.checks = FREE;
    world.reconcile_latest();
    assert!(!world.pod.has(Stage::Rollback, "a") && world.pod.refused.is_none(), "{:?}", world.pod);
    comes_to_rest_in_service(&mut world);
}

#[test]
fn begun_again_it_is_checked_anew() {
    for webhook in [true, false] {
        let mut world = refused(webhook);
        world.checks = Blockable { pre: true, ..REFUSES };
        world.begin("a", "update");
        assert_eq!(
            world.pod.has(Stage::Rollback, "a"),
            !webhook,
            "the webhook takes it away within the write"
        );
        world.settle();
        assert_refused(&world, &[]);
        assert!(world.pod.has(Stage::PreCheck, "a") && world.pod.gate == Some(ConditionStatus::False));
        world.checks = REFUSES;
        world.settle();
        assert!(world.pod.has(Stage::Operate, "a"));
        // What was done the second time is refused for itself, or accepted.
        let before = world.now;
        world.finish("a");
        world.settle();
        assert_refused(&world, &[RULE]);
        assert!(world.pod.labels[&Stage::Rollback.key("a")].parse::<i64>().unwrap() > before);
        world.begin("a", "update");
        world.settle();
        world.checks = FREE;
        world.finish("a");
        comes_to_rest_in_service(&mut world);
        assert_eq!(world.pod.refused, None);
    }
}

#[test]
fn a_cancel_leaves_nothing() {
    for webhook in [true, false] {
        let mut world = refused(webhook);
        world.undo("a", "update");
        world.settle();
        assert_eq!(world.pod.refused, None);
        comes_to_rest_in_service(&mut world);
    }
}

/// Of two operations that end together one is refused: the other waits for it, and isn't said to be refused.
#[test]
fn others_on_the_pod_are_not_refused_with_it() {
    let mut world = operating(true);
    world.begin("b", "restart");
    world.settle();
    let judge = Hook { operation_types: vec!["update".to_owned()], ..judge("judge") };
    world.register(judge);
    world.finish("a");
    world.finish("b");
    world.settle();
    world.answer("judge", &no());
    world.settle();
    assert_refused(&world, &["hook judge"]);
    assert!(world.pod.has(Stage::Completing, "b") && !world.pod.has(Stage::Rollback, "b"), "{:?}", world.pod);
    world.undo("a", "update");
    comes_to_rest_in_service(&mut world);
}

#[test]
fn a_hook_that_is_not_heard_any_more_has_not_taken_it_back() {
    let mut world = judged_by([Hook { deadline_policy: DeadlinePolicy::Proceed, ..judge("judge") }]);
    assert_refused(&world, &[]);
    world.answer("judge", &no());
    world.settle();
    assert_refused(&world, &["hook judge"]);
    // Past its deadline, asked by a process that hasn't heard it, and taking its time.
    world.now += 100_000_000_000;
    world.settle();
    assert_refused(&world, &["hook judge"]);
    world.restart();
    assert!(!world.reconcile_latest(), "{:?}", world.pod);
    world.now += 100_000_000_000;
    world.settle();
    world.answer("judge", &Answer::Open { message: "looks again".to_owned() });
    world.settle();
    assert_refused(&world, &["hook judge"]);
    world.answer("judge", &done());
    comes_to_rest_in_service(&mut world);
    assert_eq!(world.pod.refused, None);
}

#[test]
fn a_hook_whose_turn_has_not_come_again_has_not_taken_it_back() {
    let mut world = judged_by([judge("first"), Hook { order: 1, ..judge("second") }]);
    world.answer("first", &done());
    world.settle();
    world.answer("second", &no());
    world.settle();
    assert_refused(&world, &["hook second"]);
    world.restart();
    world.settle();
    assert_refused(&world, &["hook second"]);
    world.answer("first", &no());
    world.settle();
    assert_refused(&world, &["hook first", "hook second"]);
    world.answer("first", &done());
    world.settle();
    assert_refused(&world, &["hook second"]);
    world.deregister("second");
    comes_to_rest_in_service(&mut world);
}

#[test]
fn who_only_holds_tells_nobody() {
    let mut world = judged_by([Hook { post_check_rejection: PostCheckRejection::Hold, ..judge("judge") }]);
    world.answer("judge", &no());
    world.settle();
    assert_refused(&world, &[]);
    assert!(world.pod.has(Stage::PostCheck, "a"));
    // It may be told to at any time, and not to.
    world.register(judge("judge"));
    world.settle();
    assert_refused(&world, &["hook judge"]);
    world.register(Hook { post_check_rejection: PostCheckRejection::Hold, ..judge("judge") });
    world.settle();
    assert_refused(&world, &[]);
    world.answer("judge", &done());
    comes_to_rest_in_service(&mut world);
}

/// Somebody sets the label, or takes it away, or spoils the record: what is so is on the pod again with the next look.
#[test]
fn strangers_refuse_nothing_and_accept_nothing() {
    let label = Stage::Rollback.key("a");
    let mut world = operating(true);
    world.write(|pod| drop(pod.labels.insert(label.clone(), "1".to_owned())));
    assert!(!world.pod.has(Stage::Rollback, "a") && world.pod.has(Stage::Operate, "a"), "{:?}", world.pod);
    world.checks = HELD_POST;
    world.finish("a");
    world.settle();
    world.write(|pod| drop(pod.labels.insert(label.clone(), "1".to_owned())));
    world.settle();
    assert_refused(&world, &[]);
    world.checks = REFUSES;
    world.settle();
    for spoil in [None, Some("garbage".to_owned())] {
        world.write(|pod| drop(pod.labels.remove(&label)));
        world.settle();
        assert_refused(&world, &[RULE]);
        world.write(|pod| pod.refused.clone_from(&spoil));
        world.settle();
        assert!(world.pod.has(Stage::Rollback, "a") && world.pod.refused.is_some(), "{:?}", world.pod);
        assert_eq!(Refusals::of(&world.pod.view()).of_operation("a").count(), 1);
        world.write(|pod| drop(pod.labels.remove(&label)));
        world.settle();
    }
    world.checks = FREE;
    comes_to_rest_in_service(&mut world);
    assert_eq!(world.pod.refused, None);
}
