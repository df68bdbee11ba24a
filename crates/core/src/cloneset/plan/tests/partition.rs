//! Pods that are created, or replaced, count for the partition.

use super::*;

fn canary() -> SetSpec {
    SetSpec { partition: Amount::Count(9), ..set(10) }
}

fn old_pods(count: usize) -> Vec<SetPod> {
    (0..count).map(|index| old(&index.to_string())).collect()
}

/// A pod that cannot be changed in place.
fn recreated(pod: SetPod) -> SetPod {
    SetPod { revision: PodRevision::Other { in_place: false }, ..pod }
}

#[test]
fn a_lost_pod_is_replaced_and_no_other_is_updated() {
    let expected = Plan { create: Creations { current: 0, update: 1 }, ..Plan::default() };
    assert_eq!(plan(&canary(), &old_pods(9)), expected);
    // Its creation waits.
    let held = SetSpec { scale_max_unavailable: Some(Amount::Count(0)), ..canary() };
    assert_eq!(plan(&held, &old_pods(9)), Plan { creations_held: 1, ..Plan::default() });
    // Two pods may be updated, one of them is created.
    let two = SetSpec { partition: Amount::Count(8), ..canary() };
    let found = plan(&two, &old_pods(9));
    assert_eq!((found.create.update, found.steps.len()), (1, 1));
}

#[test]
fn a_pod_that_is_being_replaced_is_the_only_one() {
    let mut pods: Vec<SetPod> = old_pods(9).into_iter().map(recreated).collect();
    pods.push(recreated(SetPod { specified_delete: true, ..in_state(State::PreparingDelete, old("x")) }));
    let set = SetSpec { lifecycle: with_hooks(10).lifecycle, ..canary() };
    assert_eq!(plan(&set, &pods), Plan::default(), "its hook holds it");
    // The replacement does not wait for the hook.
    let excluded = SetSpec { exclude_preparing_delete: true, ..set.clone() };
    let expected = Plan { create: Creations { current: 0, update: 1 }, ..Plan::default() };
    assert_eq!(plan(&excluded, &pods), expected);
    // Without a hook, it is deleted, and nothing else.
    assert!(only(plan(&canary(), &pods)).delete);
    // It is replaced with an old pod if the new revision has enough.
    pods.push(pod("y"));
    pods.swap_remove(0);
    assert_eq!(plan(&set, &pods), Plan::default());
}

#[test]
fn a_surge_is_the_updated_pod() {
    let limits = (Amount::Count(1), Amount::Count(1));
    let set = SetSpec { max_surge: limits.0, max_unavailable: limits.1, ..canary() };
    let pods: Vec<SetPod> = old_pods(10).into_iter().map(recreated).collect();
    let expected = Plan { create: Creations { current: 0, update: 1 }, ..Plan::default() };
    assert_eq!(plan(&set, &pods), expected);
    let pods: Vec<SetPod> = pods.into_iter().chain([pod("y")]).collect();
    let step = only(plan(&set, &pods));
    assert!(step.delete && step.pod < 10, "{step:?}");
}

#[test]
fn a_pod_that_waits_for_its_update_goes_on_when_another_is_lost() {
    let mut pods = old_pods(9);
    pods[0].state = Some(State::PreparingUpdate);
    let found = plan(&canary(), &pods);
    assert_eq!(found.create, Creations { current: 1, update: 0 });
    assert!(found.steps.len() == 1 && found.steps[0].update, "{found:?}");
}

#[test]
fn without_a_partition_all_old_pods_are_updated() {
    let set = SetSpec { max_unavailable: Amount::Count(10), ..set(10) };
    let found = plan(&set, &old_pods(8));
    assert_eq!((found.create.update, found.steps.len()), (2, 8));
    let mut pods = old_pods(10);
    pods[0].specified_delete = true;
    assert_eq!(plan(&set, &pods).steps.len(), 10);
}

#[test]
fn a_pod_with_a_bad_release_gets_the_next_one_when_another_is_lost() {
    let mut pods = old_pods(9);
    pods[3] = in_state(State::Updating, SetPod { ready: false, ..pods[3].clone() });
    let found = plan(&canary(), &pods);
    assert_eq!(found.create, Creations { current: 1, update: 0 });
    assert!(found.steps.len() == 1 && found.steps[0].pod == 3 && found.steps[0].update, "{found:?}");
}

/// Nothing else is created before the first pod is Ready.
#[test]
fn the_first_pods_of_a_set_get_another_release_if_they_do_not_get_ready() {
    let one = Some(Amount::Count(1));
    let set = SetSpec { max_unavailable: Amount::Count(1), scale_max_unavailable: one, ..set(10) };
    let bad = SetPod { ready: false, ..old("a") };
    let found = plan(&set, std::slice::from_ref(&bad));
    assert_eq!((found.create, found.creations_held), (Creations::default(), 9));
    assert!(found.steps.len() == 1 && found.steps[0].update, "{found:?}");
    let found = plan(&set, &[recreated(bad)]);
    assert!(found.steps.len() == 1 && found.steps[0].delete, "{found:?}");
}

#[test]
fn a_scale_in_keeps_the_old_pods_of_the_partition() {
    let set = SetSpec { partition: Amount::Count(3), ..set(4) };
    let broken = SetPod { ready: false, ready_long_enough: false, ..old("a") };
    let cheap = SetPod { deletion_cost: -1, ..old("b") };
    let pods = [broken, cheap, old("c"), pod("d"), pod("e")];
    let deleted = |set: &SetSpec, pods: &[SetPod]| {
        let steps = plan(&SetSpec { max_unavailable: Amount::Count(5), ..set.clone() }, pods).steps;
        let names = steps.iter().filter(|step| step.delete).map(|step| &*pods[step.pod].name);
        names.collect::<Vec<_>>().concat()
    };
    assert_eq!(deleted(&set, &pods), "d", "three old pods stay, and one new one");
    // One old pod is too many.
    let two = SetSpec { replicas: 3, partition: Amount::Count(2), ..set.clone() };
    assert_eq!(deleted(&two, &pods), "ad");
    // All old ones are too many.
    let small = SetSpec { replicas: 1, partition: Amount::Percent(0), ..set.clone() };
    assert_eq!(deleted(&small, &pods), "abcd");
    // There are no new ones.
    let kept = [old("a"), old("b"), old("c")];
    assert_eq!(deleted(&SetSpec { replicas: 2, ..set }, &kept), "a");
}

/// As many available pods are deleted as may be, and then broken ones before others.
#[test]
fn a_scale_in_does_not_wait_for_pods_of_a_broken_release() {
    let broken = |name: &str| SetPod { ready: false, ready_long_enough: false, ..pod(name) };
    let set = SetSpec { replicas: 5, paused: true, ..canary() };
    let set = SetSpec { partition: Amount::Count(0), ..set };
    let mut pods = old_pods(8);
    pods.extend([broken("x"), broken("y")]);
    let deleted = |pods: &[SetPod]| {
        let steps = plan(&set, pods).steps;
        let names = steps.iter().filter(|step| step.delete).map(|step| &*pods[step.pod].name);
        names.collect::<Vec<_>>().concat()
    };
    assert_eq!(deleted(&pods), "0123x");
    // Four of them are available, as many as must be.
    pods.drain(..4);
    assert_eq!(deleted(&pods), "x");
}
