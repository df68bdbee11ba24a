//! Hooks that aren't asked in every phase, change their registration, or go; and pods that aren't theirs any more.

use super::*;

#[test]
fn hooks_without_a_phase_are_done_with_it() {
    let mut world = created([with("out", &[Phase::Prepare]), with("in", &[Phase::Complete])]);
    world.work();
    assert_eq!(world.asked(), [("in", Phase::Complete)]);
    assert!(!world.is_held_by("out"), "not before the pod is in service");
    assert_eq!(world.answers("in"), 1);
    assert!(world.is_held_by("in") && world.is_held_by("out"));
    world.kubelet();
    world.work();
    world.begin("x", "update");
    assert_eq!(world.work(), 1);
    assert!(!world.is_held_by("in"), "without being asked");
    assert_eq!(world.asked(), [("out", Phase::Prepare)]);
}

#[test]
fn a_hook_that_is_removed_releases_the_pods_that_wait_for_it() {
    let mut world = in_service([hook("mesh"), hook("registry")]);
    world.begin("x", "update");
    world.work();
    world.deregister("mesh");
    let plan = world.look();
    let removed = plan.notes.iter().any(|note| note.hook == "mesh" && note.event == HookEvent::Removed);
    assert!(removed, "{:?}", plan.notes);
    assert_eq!(world.work(), 1);
    assert!(!world.is_held_by("mesh") && world.is_held_by("registry"));
    let text = [&world.pod.expected, &world.pod.asked, &world.pod.evidence];
    assert!(text.into_iter().flatten().all(|text| !text.contains("mesh")), "{:?}", world.pod);
    world.answers("registry");
    assert!(world.pod.has(Stage::Operate, "x"));
    world.deregister("registry");
    assert_eq!(world.work(), 1, "nobody will hold the pod again");
    assert_eq!((world.pod.expected, world.pod.evidence), (None, None));
}

#[test]
fn that_a_removed_hook_is_not_waited_for_to_take_a_pod_in_is_told() {
    let mut world = created([hook("mesh")]);
    // As the mutating-webhook writes it.
    let expected = serde_json::json!({"expectedFinalizers": {employer_of("mesh"): finalizer_of("mesh")}});
    world.pod.expected = Some(expected.to_string());
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)]);
    world.deregister("mesh");
    let removed = |note: &Note| note.hook == "mesh" && note.event == HookEvent::Removed;
    assert_eq!(world.look().notes.iter().filter(|note| removed(note)).count(), 1);
    world.work();
    assert_eq!(world.pod.expected, None);
    assert!(!world.look().notes.iter().any(removed), "once");
}

#[test]
fn a_pod_that_is_no_more_a_hooks_is_released() {
    use podward_core::hooks::Selector;
    let selector = || Selector::new([("tier".to_owned(), "front".to_owned())].into(), []).unwrap();
    let asked = Hook { pod_selector: selector(), ..hook("mesh") };
    let silent = Hook { pod_selector: selector(), ..with("quiet", &[Phase::Prepare, Phase::Complete]) };
    let mut world = created([asked, silent]);
    world.relabel(Some("front"));
    world.settle_with_hooks();
    assert!(world.is_held_by("mesh") && world.is_held_by("quiet"));
    world.relabel(None);
    let plan = world.look();
    assert!(plan.notes.iter().any(|note| note.hook == "quiet" && note.event == HookEvent::Released));
    assert_eq!(world.work(), 1);
    assert!(!world.is_held_by("quiet"));
    assert_eq!(world.asked(), [("mesh", Phase::Release)]);
    let since = world.question("mesh").since;
    world.restart();
    world.work();
    assert_eq!(world.question("mesh").since, since, "its time is on the pod");
    assert_eq!(world.answers("mesh"), 1);
    assert_eq!((world.pod.finalizers.len(), &world.pod.expected), (1, &None));
    assert!(world.pod.labels.contains_key(keys::SERVICE_AVAILABLE), "it served all the time");
}

#[test]
fn terminating_pods_are_released() {
    let mut world = in_service([hook("mesh"), with("quiet", &[Phase::Prepare, Phase::Complete])]);
    world.terminate();
    assert_eq!(world.work(), 1);
    assert!(!world.is_held_by("quiet"), "it is not asked on release");
    assert_eq!(world.asked(), [("mesh", Phase::Release)]);
    assert_eq!(world.question("mesh").since, world.pod.times.terminating.unwrap());
    assert!(world.told().contains("it is gone when hook mesh has let go"), "{}", world.told());
    assert!(world.told().contains("RELEASE since"), "{}", world.told());
    assert_eq!(world.answers("mesh"), 1);
    assert_eq!(world.pod.finalizers, ["example.com/not-ours"]);
}

#[test]
fn a_hook_that_was_made_to_hold_a_pod_and_is_asked_from_now_on_is_asked_for_it() {
    // Nobody can say of a pod without the gate when traffic came to it first.
    let mut world = World::created(false, false);
    world.hooks.are_alone = true;
    world.register(with("mesh", &[Phase::Prepare]));
    world.register(Hook { prepare_timing: GateTiming::BeforeGate, ..with("first", &[Phase::Prepare]) });
    world.begin("x", "update");
    world.work();
    assert_eq!(world.asked(), [("first", Phase::Prepare)]);
    assert!(world.is_held_by("mesh"), "it may send traffic, and is asked to let go when its turn comes");
    world.undo("x", "update");
    world.register(with("mesh", &[Phase::Complete]));
    world.kubelet();
    world.work();
    assert_eq!(world.asked(), [("mesh", Phase::Complete)]);
    assert!(!world.pod.labels.contains_key(keys::SERVICE_AVAILABLE));
    world.answers("mesh");
    assert_eq!(world.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
}
