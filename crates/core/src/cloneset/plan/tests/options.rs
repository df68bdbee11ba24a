//! Deadlines of hooks, and hooks that hold traffic.

use super::*;

/// A set whose hooks have these options.
fn with_options(options: impl Fn(&mut Hook)) -> SetSpec {
    let mut set = with_hooks(1);
    let lifecycle = set.lifecycle.as_mut().unwrap();
    let hooks = [&mut lifecycle.pre_normal, &mut lifecycle.in_place_update, &mut lifecycle.pre_delete];
    hooks.into_iter().flatten().for_each(options);
    set
}

fn overdue(pod: SetPod) -> SetPod {
    SetPod { past_deadline: true, ..pod }
}

#[test]
fn a_pod_goes_on_when_the_deadline_of_its_hook_has_passed() {
    let set = with_options(|hook| hook.proceeds = true);
    let new = in_state(State::PreparingNormal, without("newly-create", pod("a")));
    assert_eq!(plan(&set, std::slice::from_ref(&new)), Plan::default());
    assert_eq!(only(plan(&set, &[overdue(new)])).state, Some(State::Normal));
    let step = only(plan(&set, &[overdue(in_state(State::PreparingUpdate, old("a")))]));
    assert_eq!((step.state, step.update), (Some(State::Updating), true));
    let updated = in_state(State::Updated, without("unready-blocker-inplace", pod("a")));
    assert_eq!(only(plan(&set, &[overdue(updated)])).state, Some(State::Normal));
    let leaving = SetPod { specified_delete: true, ..in_state(State::PreparingDelete, pod("a")) };
    assert_eq!(plan(&set, &[leaving.clone(), pod("b")]).steps, []);
    assert!(only(plan(&set, &[overdue(leaving), pod("b")])).delete);
}

#[test]
fn a_hook_that_holds_waits_longer_than_its_deadline() {
    let set = with_hooks(1);
    let waits = [
        in_state(State::PreparingNormal, without("newly-create", pod("a"))),
        in_state(State::PreparingUpdate, old("a")),
        in_state(State::Updated, without("unready-blocker-inplace", pod("a"))),
    ];
    for pod in waits {
        assert_eq!(plan(&set, &[overdue(pod)]), Plan::default());
    }
}

#[test]
fn the_deadline_of_one_hook_does_not_end_the_wait_for_another() {
    let set = SetSpec { replicas: 0, ..with_options(|hook| hook.proceeds = true) };
    let step = only(plan(&set, &[overdue(in_state(State::PreparingUpdate, old("a")))]));
    assert_eq!((step.state, step.delete), (Some(State::PreparingDelete), false));
}

#[test]
fn a_hook_holds_traffic_until_it_confirms_the_pod() {
    let set = with_options(|hook| hook.hold_traffic = true);
    let new = in_state(State::PreparingNormal, without("newly-create", pod("a")));
    let held = NotReadyKeys { pre_normal: true, ..NotReadyKeys::default() };
    assert_eq!(only(plan(&set, std::slice::from_ref(&new))).not_ready, Some(held));
    let unscheduled = SetPod { scheduled: false, not_ready: None, ..new.clone() };
    assert_eq!(only(plan(&set, &[unscheduled])).not_ready, Some(held), "before it has a node");
    // Podward puts it into service only if it is Ready.
    let confirmed = SetPod {
        labels: pod("a").labels,
        not_ready: Some(held),
        awaits_service: true,
        operation: Operation::None,
        ..new
    };
    let step = only(plan(&set, &[confirmed]));
    assert_eq!((step.state, step.not_ready), (None, Some(NotReadyKeys::default())));

    let updated = in_state(State::Updated, without("unready-blocker-inplace", pod("a")));
    let held = NotReadyKeys { post_update: true, ..NotReadyKeys::default() };
    assert_eq!(only(plan(&set, std::slice::from_ref(&updated))).not_ready, Some(held));
    let confirmed = SetPod { labels: pod("a").labels, not_ready: Some(held), ..updated };
    let step = only(plan(&set, &[confirmed]));
    assert_eq!((step.state, step.not_ready), (Some(State::Normal), Some(NotReadyKeys::default())));
}

#[test]
fn a_hook_that_is_asked_again_holds_traffic_until_it_confirms_the_pod() {
    let set = with_options(|hook| hook.hold_traffic = true);
    let held = Some(NotReadyKeys { post_update: true, ..NotReadyKeys::default() });
    let updated = SetPod { not_ready: held, ..in_state(State::Updated, old("a")) };
    let updated = without("unready-blocker-inplace", updated);
    let step = only(plan(&set, std::slice::from_ref(&updated)));
    assert_eq!((step.rearm, step.not_ready), (Some(Rearm::Begin), None));
    let waits = SetPod { not_ready: held, ..in_state(State::PreparingUpdate, rearmed(old("a"))) };
    assert_eq!(plan(&set, std::slice::from_ref(&waits)), Plan::default());
    let reverted = SetPod { revision: PodRevision::Update, ..waits };
    let step = only(plan(&set, &[reverted]));
    assert_eq!((step.rearm, step.not_ready), (Some(Rearm::End), None));
}

/// Somebody has copied the annotation, or has changed the state.
#[test]
fn markers_count_as_put_back_only_while_the_hook_is_asked() {
    let set = with_options(|hook| hook.hold_traffic = true);
    let held = Some(NotReadyKeys { post_update: true, ..NotReadyKeys::default() });
    let stale = rearmed(pod("a"));
    assert_eq!(plan(&set, std::slice::from_ref(&stale)), Plan::default());
    let step = only(plan(&set, &[SetPod { not_ready: held, ..stale.clone() }]));
    let expected = (Some(Rearm::Forget), Some(NotReadyKeys::default()));
    assert_eq!((step.rearm, step.not_ready), expected, "it is forgotten with the next write");
    let step = only(plan(&set, &[rearmed(old("a"))]));
    let expected = PodStep { rearm: Some(Rearm::Forget), ..PodStep::to(0, State::PreparingUpdate) };
    assert_eq!(step, expected);
    let updated = without("unready-blocker-inplace", in_state(State::Updated, rearmed(old("a"))));
    assert_eq!(only(plan(&set, &[updated])).rearm, Some(Rearm::Begin));
    let updated = in_state(State::Updated, stale.clone());
    let expected = PodStep { rearm: Some(Rearm::Forget), ..PodStep::to(0, State::Normal) };
    assert_eq!(only(plan(&set, &[updated])), expected);
    // Its deletion is cancelled.
    let leaving = |previous| SetPod {
        previous: Some(previous),
        not_ready: held,
        ..in_state(State::PreparingDelete, stale.clone())
    };
    let step = only(plan(&set, &[leaving(State::PreparingUpdate)]));
    assert_eq!((step.state, step.rearm, step.not_ready), (Some(State::PreparingUpdate), None, None));
    let step = only(plan(&set, &[leaving(State::Normal)]));
    assert_eq!((step.state, step.rearm), (Some(State::Normal), Some(Rearm::Forget)));
}

/// Those of operators that have confirmed the last update may be among them.
#[test]
fn unknown_markers_are_taken_away_by_their_operator() {
    let set = with_options(|hook| hook.hold_traffic = true);
    let waits = SetPod { rearmed: Some(PutBack::default()), ..in_state(State::PreparingUpdate, pod("a")) };
    let held = NotReadyKeys { post_update: true, ..NotReadyKeys::default() };
    let waits = SetPod { not_ready: Some(held), ..waits };
    assert_eq!(plan(&set, std::slice::from_ref(&waits)), Plan::default());
    let released = without("unready-blocker-inplace", waits);
    let expected = PodStep { rearm: Some(Rearm::End), ..PodStep::to(0, State::Updated) };
    assert_eq!(only(plan(&set, &[released])), expected);
}

#[test]
fn a_pod_that_has_opted_in_is_normal_when_it_is_in_service() {
    let new = in_state(State::PreparingNormal, pod("a"));
    let new = SetPod { awaits_service: true, operation: Operation::None, ..new };
    for set in [set(1), with_hooks(1)] {
        assert_eq!(plan(&set, std::slice::from_ref(&new)), Plan::default());
        let in_service = SetPod { awaits_service: false, ..new.clone() };
        assert_eq!(only(plan(&set, &[in_service])), PodStep::to(0, State::Normal));
    }
}

#[test]
fn deletions_by_others_wait_for_the_hook() {
    let set =
        SetSpec { delete_hold: Some("markers".to_owned()), ..with_options(|hook| hook.proceeds = true) };
    let stored = Some("markers".to_owned());
    assert_eq!(only(plan(&set, &[pod("a")])).delete_hold, Some(stored.clone()), "it has not opted in");
    let opted_in = SetPod { operation: Operation::None, ..pod("a") };
    assert_eq!(only(plan(&set, std::slice::from_ref(&opted_in))).delete_hold, Some(stored.clone()));
    let held = SetPod { delete_hold: stored, ..opted_in };
    assert_eq!(plan(&set, std::slice::from_ref(&held)), Plan::default());
    let requested = SetPod { deletion_requested: true, ..held.clone() };
    assert_eq!(only(plan(&set, std::slice::from_ref(&requested))).state, Some(State::PreparingDelete));
    let late = overdue(in_state(State::PreparingDelete, requested));
    assert_eq!(only(plan(&set, &[late])).delete_hold, Some(None), "it goes on without the hook");
    let removed = SetSpec { delete_hold: None, ..set };
    assert_eq!(only(plan(&removed, &[held])).delete_hold, Some(None), "the hook was removed");
}

/// Without them, the pod would count as released if the deletion was cancelled.
#[test]
fn a_pod_that_is_deleted_keeps_the_markers_that_were_put_back() {
    let put_back = |state: State| {
        let pod = rearmed(in_state(state, old("a")));
        let finalizers = pod.rearmed.iter().flat_map(|it| it.finalizers.clone()).collect();
        SetPod { finalizers, previous: Some(State::PreparingUpdate), ..pod }
    };
    for state in [State::PreparingUpdate, State::PreparingDelete] {
        assert_eq!(only(plan(&set(0), &[put_back(state)])), PodStep { delete: true, ..PodStep::of(0) });
    }
}
