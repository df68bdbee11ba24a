//! Hooks that aren't asked in every phase, change their registration, or go; and pods that aren't theirs any more.

use super::*;

#[test]
fn hooks_without_a_phase_are_done_with_it() {
    let mut model = created([with("out", &[HookPhase::Prepare]), with("in", &[HookPhase::Complete])]);
    model.work();
    assert_eq!(model.asked(), [("in", HookPhase::Complete)]);
    assert!(!model.is_held_by("out"), "not before the pod is in service");
    assert_eq!(model.answers("in"), 1);
    assert!(model.is_held_by("in") && model.is_held_by("out"));
    model.kubelet();
    model.work();
    model.begin("x", "update");
    assert_eq!(model.work(), 1);
    assert!(!model.is_held_by("in"), "without being asked");
    assert_eq!(model.asked(), [("out", HookPhase::Prepare)]);
}

#[test]
fn a_hook_that_is_removed_releases_the_pods_that_wait_for_it() {
    let mut model = in_service([hook("mesh"), hook("registry")]);
    model.begin("x", "update");
    model.work();
    model.deregister("mesh");
    let plan = model.look();
    let removed =
        plan.hook_reports.iter().any(|note| note.hook == "mesh" && note.event == HookEvent::Removed);
    assert!(removed, "{:?}", plan.hook_reports);
    assert_eq!(model.work(), 1);
    assert!(!model.is_held_by("mesh") && model.is_held_by("registry"));
    let text = [&model.pod.expected, &model.pod.asked, &model.pod.evidence];
    assert!(text.into_iter().flatten().all(|text| !text.contains("mesh")), "{:?}", model.pod);
    model.answers("registry");
    assert!(model.pod.has(Stage::Operate, "x"));
    model.deregister("registry");
    assert_eq!(model.work(), 1, "nobody will hold the pod again");
    assert_eq!((model.pod.expected, model.pod.evidence), (None, None));
}

#[test]
fn a_removed_hook_that_should_add_a_pod_is_reported() {
    let mut model = created([hook("mesh")]);
    // As the mutating-webhook writes it.
    let expected =
        serde_json::json!({"expectedFinalizers": {consumer_key_of("mesh"): hook_finalizer("mesh")}});
    model.pod.expected = Some(expected.to_string());
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    model.deregister("mesh");
    let removed = |note: &HookReport| note.hook == "mesh" && note.event == HookEvent::Removed;
    assert_eq!(model.look().hook_reports.iter().filter(|note| removed(note)).count(), 1);
    model.work();
    assert_eq!(model.pod.expected, None);
    assert!(!model.look().hook_reports.iter().any(removed), "once");
}

#[test]
fn a_pod_that_is_no_more_a_hooks_is_released() {
    use podward_core::hooks::Selector;
    let selector = || Selector::new([("tier".to_owned(), "front".to_owned())].into(), []).unwrap();
    let asked = Hook { pod_selector: selector(), ..hook("mesh") };
    let silent =
        Hook { pod_selector: selector(), ..with("quiet", &[HookPhase::Prepare, HookPhase::Complete]) };
    let mut model = created([asked, silent]);
    model.relabel(Some("front"));
    model.settle_with_hooks();
    assert!(model.is_held_by("mesh") && model.is_held_by("quiet"));
    model.relabel(None);
    let plan = model.look();
    assert!(plan.hook_reports.iter().any(|note| note.hook == "quiet" && note.event == HookEvent::Released));
    assert_eq!(model.work(), 1);
    assert!(!model.is_held_by("quiet"));
    assert_eq!(model.asked(), [("mesh", HookPhase::Release)]);
    let since = model.question("mesh").since;
    model.restart();
    model.work();
    assert_eq!(model.question("mesh").since, since, "its time is on the pod");
    assert_eq!(model.answers("mesh"), 1);
    assert_eq!((model.pod.finalizers.len(), &model.pod.expected), (1, &None));
    assert!(model.pod.labels.contains_key(keys::SERVICE_AVAILABLE), "it served all the time");
}

/// The hook was asked to add the pod, and may have done so although its answer is not known.
#[test]
fn a_hook_whose_pod_is_not_its_own_any_more_is_asked_to_forget_it_while_it_adds_it() {
    use podward_core::hooks::Selector;
    let pod_selector = Selector::new([("tier".to_owned(), "front".to_owned())].into(), []).unwrap();
    let mut model = created([Hook { pod_selector, ..hook("mesh") }]);
    model.relabel(Some("front"));
    // As the mutating-webhook writes it.
    let expected =
        serde_json::json!({"expectedFinalizers": {consumer_key_of("mesh"): hook_finalizer("mesh")}});
    model.pod.expected = Some(expected.to_string());
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    model.relabel(None);
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Release)]);
    assert!(model.is_held_by("mesh"), "the pod stays until the hook has answered");
    assert_eq!(model.pod.expected, None, "nothing waits for the hook");
    model.restart();
    assert_eq!(model.work(), 0);
    model.answers("mesh");
    assert!(!model.is_held_by("mesh") && model.asked().is_empty(), "{:?}", model.pod);
    assert_eq!((&model.pod.expected, &model.pod.asked), (&None, &None));
}

/// A pod in service is not written to before the hook answers, so only the process knows that it may be adding the pod.
#[test]
fn a_hook_that_may_be_adding_a_pod_in_service_that_is_not_its_own_any_more_is_asked_to_forget_it() {
    use podward_core::hooks::Selector;
    let pod_selector = Selector::new([("tier".to_owned(), "front".to_owned())].into(), []).unwrap();
    let mut model = in_service([]);
    model.register(Hook { pod_selector, ..hook("mesh") });
    model.relabel(Some("front"));
    assert_eq!(model.work(), 0);
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    model.relabel(None);
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Release)]);
    assert!(model.is_held_by("mesh"), "the pod stays until the hook has answered");
    model.restart();
    assert_eq!(model.work(), 0);
    model.answers("mesh");
    assert!(!model.is_held_by("mesh") && model.asked().is_empty(), "{:?}", model.pod);
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE], "it served all the time");
}

/// The opt-out removes the finalizers of hooks; the labels and the gate stay.
#[test]
fn a_hook_whose_finalizer_was_removed_by_an_opt_out_is_asked_to_drain_the_pod_after_the_opt_in() {
    for (is_seen, has_webhook) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut model = in_service([hook("mesh"), hook("registry")]);
        model.begin("x", "update");
        model.work();
        model.answers("registry");
        assert_eq!(model.asked(), [("mesh", HookPhase::Prepare)]);
        assert_eq!(model.pod.gate, Some(ConditionStatus::False));
        model.pod.finalizers.retain(|name| *name != hook_finalizer("mesh"));
        if is_seen {
            // As the controller leaves a pod that has opted out.
            (model.pod.expected, model.pod.asked) = (None, None);
        }
        if has_webhook {
            // As the webhook opts it in; see `an_opt_in_removes_evidence`.
            model.pod.labels.remove(&Stage::PreChecked.key("x"));
            model.pod.labels.remove(&keys::permission_key("update"));
            model.pod.labels.insert(Stage::PreCheck.key("x"), model.now.to_string());
            model.pod.evidence = None;
        }
        model.restart();
        model.work();
        assert!(model.asked().contains(&("mesh", HookPhase::Prepare)), "{is_seen} {has_webhook}");
        assert_eq!(
            model.is_held_by("registry"),
            has_webhook,
            "its evidence says that it has released the pod"
        );
        assert!(!model.pod.has(Stage::Operate, "x"));
        model.answers("mesh");
        if has_webhook {
            model.answers("registry");
        }
        assert!(model.pod.has(Stage::Operate, "x"), "{:?}", model.pod);
    }
}

#[test]
fn terminating_pods_are_released() {
    let mut model = in_service([hook("mesh"), with("quiet", &[HookPhase::Prepare, HookPhase::Complete])]);
    model.terminate();
    assert_eq!(model.work(), 1);
    assert!(!model.is_held_by("quiet"), "it is not asked on release");
    assert_eq!(model.asked(), [("mesh", HookPhase::Release)]);
    assert_eq!(model.question("mesh").since, model.pod.times.terminating.unwrap());
    assert!(model.reported().contains("it is removed when hook mesh has released"), "{}", model.reported());
    assert!(model.reported().contains("RELEASE since"), "{}", model.reported());
    assert_eq!(model.answers("mesh"), 1);
    assert_eq!(model.pod.finalizers, ["example.com/not-ours"]);
}

#[test]
fn a_hook_that_was_made_to_hold_a_pod_and_is_asked_from_now_on_is_asked_for_it() {
    // Nobody can say of a pod without the gate when traffic came to it first.
    let mut model = Model::created(false, false);
    model.hooks.are_alone = true;
    model.register(with("mesh", &[HookPhase::Prepare]));
    model.register(Hook { prepare_timing: GateTiming::BeforeGate, ..with("first", &[HookPhase::Prepare]) });
    model.begin("x", "update");
    model.work();
    assert_eq!(model.asked(), [("first", HookPhase::Prepare)]);
    assert!(model.is_held_by("mesh"), "it may send traffic, and is asked to let go when its turn comes");
    model.undo("x", "update");
    model.register(with("mesh", &[HookPhase::Complete]));
    model.kubelet();
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete)]);
    assert!(!model.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    model.answers("mesh");
    assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
}

/// A pod that has finished never serves again, and its address may already belong to another pod.
#[test]
fn a_finished_pod_is_released() {
    let mut model = in_service([hook("mesh"), with("silent", &[HookPhase::Prepare])]);
    model.containers(false);
    model.pod.finished = true;
    assert_eq!(model.work(), 1, "what is not asked is removed at once");
    assert_eq!(model.asked(), [("mesh", HookPhase::Release)]);
    assert!(!model.is_held_by("silent"));
    let since = model.question("mesh").since;
    model.sleep(60);
    model.work();
    assert_eq!(model.question("mesh").since, since, "the deadline does not start again");
    assert!(model.reported().contains("the pod has finished"), "{}", model.reported());
    assert_eq!(model.answers("mesh"), 1);
    assert!(!model.is_held_by("mesh") && model.asked().is_empty(), "and not added again");

    // An operation neither asks nor holds it.
    model.begin("x", "update");
    model.work();
    assert!(model.asked().is_empty() && model.pod.has(Stage::Operate, "x"), "{:?}", model.pod);
    assert!(model.pod.expected.as_ref().unwrap().contains(&consumer_key_of("mesh")), "{:?}", model.pod);
    model.finish("x");
    model.work();
    assert!(model.pod.protocol_labels().is_empty(), "nobody adds the pod again: {:?}", model.pod);
    assert!(model.reported().contains("the pod has finished"), "{}", model.reported());
}

/// The hook was asked to add the pod, and may have done so although its answer is not known.
#[test]
fn a_pod_that_finishes_while_a_hook_adds_it_is_released() {
    let silent = with("silent", &[HookPhase::Prepare, HookPhase::Complete]);
    let mut model = created([hook("mesh"), silent]);
    model.containers(true);
    model.work();
    assert_eq!(model.asked(), [("mesh", HookPhase::Complete), ("silent", HookPhase::Complete)]);
    model.containers(false);
    model.pod.finished = true;
    assert_eq!(model.work(), 1, "the finalizer and the time of the question");
    assert_eq!(model.asked(), [("mesh", HookPhase::Release)]);
    assert!(model.is_held_by("mesh") && !model.is_held_by("silent"));
    let since = model.question("mesh").since;
    model.restart();
    assert_eq!(model.work(), 0);
    assert_eq!((model.asked(), model.question("mesh").since), (vec![("mesh", HookPhase::Release)], since));
    assert_eq!(model.answers("mesh"), 1);
    assert!(!model.is_held_by("mesh") && model.asked().is_empty(), "{:?}", model.pod);
    assert_eq!(model.pod.asked, None);
}
