//! Hooks that don't answer in time.

use super::*;

fn overdue(deadline_policy: DeadlinePolicy) -> World {
    let mut world = in_service([Hook { deadline_policy, ..hook("mesh") }]);
    world.begin("x", "update");
    world.work();
    let wake = world.look().wake;
    assert_eq!(wake, Some(world.question("mesh").deadline), "it is looked at again then");
    world.sleep(60);
    world
}

#[test]
fn past_its_deadline_a_hook_is_waited_for() {
    let mut world = overdue(DeadlinePolicy::Hold);
    assert_eq!(world.work(), 0);
    assert!(world.look().notes.iter().any(|note| note.event == HookEvent::Overdue));
    assert!(world.told().contains("and waited for all the same"), "{}", world.told());
    assert!(world.is_held_by("mesh"));
    world.answers("mesh");
    assert!(world.pod.has(Stage::Operate, "x"), "late is better than never");
}

#[test]
fn past_its_deadline_the_pod_goes_on_without_a_hook() {
    let mut world = overdue(DeadlinePolicy::Proceed);
    let plan = world.look();
    assert!(plan.notes.iter().any(|note| note.event == HookEvent::Proceeded), "{:?}", plan.notes);
    assert_eq!(world.work(), 1);
    assert!(world.pod.has(Stage::Operate, "x") && !world.is_held_by("mesh"));
    assert!(
        world
            .pod
            .evidence
            .as_ref()
            .unwrap()
            .contains(r#"{"mesh":{"level":"TIMED_OUT","detail":"no answer by "#)
    );
    world.finish("x");
    world.work();
    world.sleep(60);
    assert_eq!(world.work(), 1);
    assert!(world.is_held_by("mesh"), "it may have taken the pod in");
    assert!(world.pod.evidence.as_ref().unwrap().contains(r#""takenIn":{"level":"TIMED_OUT""#));
}

#[test]
fn a_new_process_asks_before_it_goes_on_without_a_hook() {
    let mut world = overdue(DeadlinePolicy::Proceed);
    world.restart();
    assert!(world.look().wake.is_some(), "and looks again soon");
    assert_eq!(world.work(), 0);
    assert!(world.is_held_by("mesh"));
    assert_eq!(world.asked(), [("mesh", Phase::Prepare)]);
    assert_eq!(world.work(), 1, "it was asked once more");
    assert!(world.pod.has(Stage::Operate, "x"));
}

#[test]
fn past_its_deadline_an_operation_is_undone_and_the_pod_comes_back() {
    let mut world = overdue(DeadlinePolicy::Cancel);
    let plan = world.look();
    let cancelled = HookEvent::Cancelled(vec!["x".to_owned()]);
    assert!(plan.notes.iter().any(|note| note.event == cancelled), "{:?}", plan.notes);
    world.work();
    assert!(world.pod.protocol_labels().is_empty(), "{:?}", world.pod.protocol_labels());
    assert_eq!(world.asked(), [("mesh", Phase::Complete)], "it may have let go already");
    assert!(world.is_held_by("mesh") && world.pod.gate == Some(ConditionStatus::False));
    world.settle_with_hooks();
    assert_eq!(world.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
}

/// The marks of the wish are not the engine's: with its operation undone the wish counts as cancelled (`wish::intent`), and goes with
/// the room that it has in a budget.
#[test]
fn a_deletion_past_its_deadline_is_undone_and_keeps_the_marks_of_its_wish() {
    let mut world = in_service([Hook { deadline_policy: DeadlinePolicy::Cancel, ..hook("mesh") }]);
    world.begin(keys::DELETE_OPERATION, keys::DELETE_TYPE);
    for key in [keys::TO_DELETE, keys::PREPARING_TO_DELETE] {
        world.pod.labels.insert(key.to_owned(), "1".to_owned());
    }
    world.work();
    world.sleep(60);
    let plan = world.look();
    assert!(plan.labels.remove.contains(&Stage::Operating.key(keys::DELETE_OPERATION)), "{:?}", plan.labels);
    for key in [keys::TO_DELETE, keys::PREPARING_TO_DELETE] {
        assert!(!plan.labels.remove.contains(key), "{key}");
    }
}
