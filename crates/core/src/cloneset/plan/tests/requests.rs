//! Deletions that Podward holds.

use super::*;
use crate::cloneset::count;

/// A pod whose deletion the set has sent, and whose request is not seen yet.
fn sent(pod: SetPod) -> SetPod {
    SetPod { deletion_sent: true, ..pod }
}

/// The request may be that of a person.
#[test]
fn a_requested_deletion_is_not_cancelled_when_the_set_is_scaled_out() {
    let requested = SetPod { deletion_requested: true, ..pod("b") };
    for set in [set(1), set(2)] {
        assert_eq!(plan(&set, &[pod("a"), requested.clone()]), Plan::default());
    }
    assert_eq!(plan(&set(2), &[pod("a")]).create.update, 1, "it is replaced when it is gone");
}

/// Otherwise each plan would request the deletion of another one.
#[test]
fn the_pods_that_were_just_deleted_are_the_choice_of_a_scale_in() {
    let unscheduled = SetPod { scheduled: false, ready: false, ..pod("c") };
    let broken = SetPod { ready: false, ..old("d") };
    let pods = [pod("a"), sent(pod("b")), unscheduled, broken];
    let set = SetSpec { partition: Amount::Count(9), ..set(3) };
    assert_eq!(plan(&set, &pods), Plan::default());
}

/// Podward may not have recorded the request.
#[test]
fn a_pod_that_was_just_deleted_is_available() {
    let pods = [pod("a"), sent(pod("b"))];
    assert_eq!(count(&set(1), &pods).available, 2);
    assert_eq!(plan(&set(2), &pods), Plan::default(), "the set was scaled out again");
}

/// Podward may have recorded the request.
#[test]
fn a_pod_that_was_just_deleted_uses_the_budget_first() {
    let kept = SetPod { ready: false, ..old("e") };
    let pods = [pod("a"), sent(pod("b")), pod("c"), pod("d"), kept];
    let limits = |set| SetSpec { max_unavailable: Amount::Count(0), max_surge: Amount::Count(1), ..set };
    let set_of_three = SetSpec { partition: Amount::Count(1), ..limits(set(3)) };
    assert_eq!(plan(&set_of_three, &pods), Plan::default());
    // The old one has to wait, and the broken one does not.
    let broken = SetPod { ready: false, ..pod("d") };
    let found = only(plan(&limits(set(2)), &[old("a"), sent(pod("b")), pod("c"), broken]));
    assert_eq!(found, PodStep { delete: true, ..PodStep::of(3) });
}

/// A pod that somebody chose would leave service beside it.
#[test]
fn a_pod_that_was_just_deleted_uses_the_budget_of_all() {
    let chosen = SetPod { specified_delete: true, ..pod("c") };
    let set = SetSpec { max_unavailable: Amount::Count(1), ..set(3) };
    assert_eq!(only(plan(&set, &[pod("a"), pod("b"), chosen.clone()])).pod, 2);
    assert_eq!(plan(&set, &[pod("a"), sent(pod("b")), chosen]).steps, []);
}
