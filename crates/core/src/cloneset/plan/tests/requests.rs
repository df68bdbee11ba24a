//! Deletions that the set has requested, and that Podward holds.

use super::*;

/// A pod whose deletion the set has requested.
fn requested(pod: SetPod) -> SetPod {
    SetPod { deletion_requested: true, requested_by_set: true, ..pod }
}

#[test]
fn a_request_of_the_set_is_withdrawn_if_the_pod_is_needed_again() {
    let withdraws = PodStep { withdraw: true, ..PodStep::of(1) };
    for set in [set(2), SetSpec { exclude_preparing_delete: true, ..set(2) }] {
        let one = SetSpec { replicas: 1, ..set.clone() };
        assert_eq!(plan(&one, &[pod("a"), requested(pod("b"))]), Plan::default(), "one is too many");
        assert_eq!(only(plan(&set, &[pod("a"), requested(pod("b"))])), withdraws);
        // The pod has left its hook before.
        let leaving = SetPod { previous: Some(State::Normal), ..in_state(State::PreparingDelete, pod("b")) };
        assert_eq!(plan(&one, &[pod("a"), requested(leaving.clone())]), Plan::default());
        let step = only(plan(&set, &[pod("a"), requested(leaving)]));
        assert_eq!((step.state, step.withdraw), (Some(State::Normal), true));
    }
    // It cannot be withdrawn any more, or others have requested it: the pod is replaced.
    let granted = SetPod { deletion_requested: true, ..pod("b") };
    assert_eq!(plan(&set(2), &[pod("a"), granted]), Plan::default());
    let specified = SetPod { specified_delete: true, ..requested(pod("b")) };
    assert_eq!(plan(&set(2), &[pod("a"), specified]), Plan::default());
}

/// Otherwise each plan would request the deletion of another one.
#[test]
fn the_pods_of_earlier_requests_are_the_choice_of_a_scale_in() {
    let unscheduled = SetPod { scheduled: false, ready: false, ..pod("c") };
    let broken = SetPod { revision: PodRevision::Other { in_place: true }, ready: false, ..pod("d") };
    let pods = [pod("a"), requested(pod("b")), unscheduled, broken];
    let set = SetSpec { partition: Amount::Count(9), ..set(3) };
    assert_eq!(plan(&set, &pods), Plan::default());
}

#[test]
fn a_request_for_an_update_that_recreates_the_pod_stays() {
    let old = |in_place| SetPod { revision: PodRevision::Other { in_place }, ..requested(pod("b")) };
    assert_eq!(plan(&set(2), &[pod("a"), old(false)]), Plan::default());
    let recreate = SetSpec { update: UpdateKind::Recreate, ..set(2) };
    assert_eq!(plan(&recreate, &[pod("a"), old(true)]), Plan::default());
    // The template was reverted.
    assert!(only(plan(&recreate, &[pod("a"), requested(pod("b"))])).withdraw);
    // These were requested for a scale-in.
    let on_delete = SetSpec { update: UpdateKind::OnDelete, ..set(2) };
    assert!(only(plan(&on_delete, &[pod("a"), old(false)])).withdraw);
    let step = only(plan(&set(2), &[pod("a"), old(true)]));
    assert_eq!((step.state, step.withdraw), (Some(State::Updating), true));
}
