//! Hooks that don't answer in time.

use podward_core::rules::check_requests;

use super::*;

fn overdue(deadline_policy: DeadlinePolicy) -> Model {
    let mut model = in_service([Hook { deadline_policy, ..hook("mesh") }]);
    model.begin("x", "update");
    model.work();
    let wake = model.look().wake;
    assert_eq!(wake, Some(model.question("mesh").deadline), "it is looked at again then");
    model.sleep(60);
    model
}

#[test]
fn past_its_deadline_a_hook_is_waited_for() {
    let mut model = overdue(DeadlinePolicy::Hold);
    assert_eq!(model.work(), 0);
    assert!(model.look().hook_reports.iter().any(|note| note.event == HookEvent::Overdue));
    assert!(model.reported().contains("and the pod keeps waiting"), "{}", model.reported());
    assert!(model.is_held_by("mesh"));
    model.answers("mesh");
    assert!(model.pod.has(Stage::Operate, "x"), "late is better than never");
}

#[test]
fn past_its_deadline_the_pod_goes_on_without_a_hook() {
    let mut model = overdue(DeadlinePolicy::Proceed);
    let plan = model.look();
    assert!(
        plan.hook_reports.iter().any(|note| note.event == HookEvent::Proceeded),
        "{:?}",
        plan.hook_reports
    );
    assert_eq!(model.work(), 1);
    assert!(model.pod.has(Stage::Operate, "x") && !model.is_held_by("mesh"));
    assert!(
        model
            .pod
            .evidence
            .as_ref()
            .unwrap()
            .contains(r#"{"mesh":{"level":"TIMED_OUT","detail":"no answer by "#)
    );
    model.finish("x");
    model.work();
    model.sleep(60);
    assert_eq!(model.work(), 1);
    assert!(model.is_held_by("mesh"), "it may have taken the pod in");
    assert!(model.pod.evidence.as_ref().unwrap().contains(r#""added":{"level":"TIMED_OUT""#));
}

#[test]
fn a_new_process_calls_an_unreachable_hook_before_it_ignores_it() {
    let mut model = overdue(DeadlinePolicy::Proceed);
    model.restart();
    assert!(model.look().wake.is_some(), "and looks again soon");
    assert_eq!(model.work(), 0);
    assert!(model.is_held_by("mesh"));
    assert_eq!(model.asked(), [("mesh", HookPhase::Prepare)]);
    assert_eq!(model.work(), 1, "it was asked once more");
    assert!(model.pod.has(Stage::Operate, "x"));
}

#[test]
fn past_its_deadline_an_operation_is_undone_and_the_pod_comes_back() {
    let mut model = overdue(DeadlinePolicy::Cancel);
    let plan = model.look();
    let cancelled = HookEvent::Cancelled(vec!["x".to_owned()]);
    assert!(plan.hook_reports.iter().any(|note| note.event == cancelled), "{:?}", plan.hook_reports);
    model.work();
    assert!(model.pod.protocol_labels().is_empty(), "{:?}", model.pod.protocol_labels());
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)], "it may have let go already");
    assert!(model.is_held_by("mesh") && model.pod.gate == Some(ConditionStatus::False));
    model.settle_with_hooks();
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
}

/// The marks of the request are not the engine's: with its operation undone the request counts as cancelled
/// (`request::intent`), and goes with the room that it has in a budget.
#[test]
fn a_deletion_past_its_deadline_is_undone_and_keeps_the_marks_of_its_request() {
    let mut model = in_service([Hook { deadline_policy: DeadlinePolicy::Cancel, ..hook("mesh") }]);
    model.begin(keys::DELETE_OPERATION, keys::DELETE_TYPE);
    for key in [keys::TO_DELETE, keys::PREPARING_TO_DELETE] {
        model.pod.labels.insert(key.to_owned(), "1".to_owned());
    }
    model.work();
    model.sleep(60);
    let plan = model.look();
    assert!(plan.labels.remove.contains(&Stage::Operating.key(keys::DELETE_OPERATION)), "{:?}", plan.labels);
    for key in [keys::TO_DELETE, keys::PREPARING_TO_DELETE] {
        assert!(!plan.labels.remove.contains(key), "{key}");
    }
}

/// Without a request, the announcement of the delete belongs to the operation alone.
#[test]
fn an_operation_past_its_deadline_takes_the_announcement_of_a_delete_with_it() {
    let mut model = in_service([Hook { deadline_policy: DeadlinePolicy::Cancel, ..hook("mesh") }]);
    model.begin("set", "scale-in");
    model.pod.labels.insert(keys::PREPARING_TO_DELETE.to_owned(), "1".to_owned());
    model.work();
    model.sleep(60);
    let removed = model.look().labels.remove;
    for key in [Stage::Operating.key("set").as_str(), keys::PREPARING_TO_DELETE] {
        assert!(removed.contains(key), "{key}: {removed:?}");
    }
}

/// A rule that refuses late releases its grant, and the operation asks again. The hook has answered in time.
#[test]
fn a_request_that_is_made_again_keeps_the_answer_of_a_hook() {
    let (pre, post) = ((HookPhase::PreCheck, Stage::PreCheck), (HookPhase::PostCheck, Stage::PostCheck));
    let policies =
        [(DeadlinePolicy::Cancel, pre), (DeadlinePolicy::Proceed, pre), (DeadlinePolicy::Proceed, post)];
    for (deadline_policy, (phase, asks)) in policies {
        // Also from the last nanosecond of a microsecond.
        for nanoseconds in [0, 999] {
            let mut model = in_service([Hook { deadline_policy, ..with("guard", &[phase]) }]);
            (model.checks.pre, model.checks.post) = (phase == pre.0, phase == post.0);
            model.begin("x", "update");
            model.work();
            if phase == post.0 {
                model.finish("x");
                model.work();
            }
            let asked_at = model.pod.labels[&asks.key("x")].parse::<i64>().unwrap() + nanoseconds;
            model.pod.labels.insert(asks.key("x"), asked_at.to_string());
            model.work();
            model.answers("guard");
            model.sleep(60);
            let again = check_requests(&model.pod.labels)[0].asked_again_at(model.now());
            assert_ne!(again, asked_at.to_string());
            model.pod.labels.insert(asks.key("x"), again);
            let reports = model.look().hook_reports;
            let has_answered = |note: &HookReport| matches!(note.event, HookEvent::Done(_));
            assert!(!reports.is_empty() && reports.iter().all(has_answered), "{reports:?}");
            model.work();
            assert!(model.pod.has(asks, "x"), "it waits for the rules: {:?}", model.pod.labels);
        }
    }
}

/// The webhook ends the first operation and the second one begins before the controller sees it.
#[test]
fn an_operation_does_not_inherit_the_question_of_the_one_before() {
    let cancels = Hook { deadline_policy: DeadlinePolicy::Cancel, ..hook("mesh") };
    let mut model = in_service([cancels]);
    model.begin("x", "update");
    model.work();
    let first = model.question("mesh").clone();
    model.sleep(100);
    model.finish_both("x");
    assert!(!model.pod.has(Stage::Preparing, "x"));
    model.begin("y", "update");
    model.work();
    assert!(model.pod.has(Stage::Preparing, "y"), "the deadline of x does not cancel it");
    let second = model.question("mesh");
    assert_eq!(second.phase, HookPhase::Prepare);
    assert!(second.since > first.since, "{second:?}");
}

/// One hook has drained the pod before the gate, another one has not, and the operation is cancelled.
#[test]
fn a_hook_that_has_drained_a_pod_in_service_is_asked_a_new_question() {
    for complete_timing in [GateTiming::BeforeGate, GateTiming::AfterGate] {
        let before = |name| Hook { prepare_timing: GateTiming::BeforeGate, complete_timing, ..hook(name) };
        let mut model = in_service([before("mesh"), before("registry")]);
        model.begin("x", "update");
        model.work();
        let drained = model.question("mesh").since;
        model.answers("mesh");
        assert_eq!((model.is_held_by("mesh"), model.pod.gate), (false, Some(ConditionStatus::True)));
        model.undo("x", "update");
        model.work();
        let question = model.question("mesh");
        assert_eq!(question.phase, HookPhase::Complete);
        assert!(question.since > drained, "{question:?}");
        model.settle_with_hooks();
        assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
    }
}
