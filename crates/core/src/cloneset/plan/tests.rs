//! The steps of sets, one situation at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    Amount, Creations, Hook, Lifecycle, NotReadyKeys, Operation, PodRevision, PodStep, UpdateKind,
};
use super::super::{OperationStep, Previous, PutBack, Rearm, State, UpdateProgress};
use super::*;

mod operations;
mod options;
mod partition;
mod requests;

pub(in super::super) fn set(replicas: u32) -> SetSpec {
    SetSpec {
        replicas,
        update: UpdateKind::InPlaceIfPossible,
        paused: false,
        partition: Amount::Count(0),
        scatter: Vec::new(),
        max_unavailable: Amount::Percent(20),
        max_surge: Amount::Count(0),
        scale_max_unavailable: None,
        pods_to_delete: BTreeSet::new(),
        exclude_preparing_delete: false,
        lifecycle: None,
        delete_hold: None,
    }
}

/// A hook with one label.
fn hook(name: &str) -> Option<Hook> {
    let labels = BTreeMap::from([(name.to_owned(), "true".to_owned())]);
    Some(Hook { labels, ..Hook::default() })
}

fn with_hooks(replicas: u32) -> SetSpec {
    let lifecycle = Lifecycle {
        pre_normal: hook("newly-create"),
        in_place_update: hook("unready-blocker-inplace"),
        pre_delete: hook("unready-blocker-delete"),
    };
    SetSpec { lifecycle: Some(lifecycle), ..set(replicas) }
}

/// An available pod with the revision of the template and all markers.
pub(in super::super) fn pod(name: &str) -> SetPod {
    let markers = ["newly-create", "unready-blocker-inplace", "unready-blocker-delete"];
    SetPod {
        name: name.to_owned(),
        state: Some(State::Normal),
        previous: None,
        unconfirmed: false,
        rearmed: None,
        past_deadline: false,
        delete_hold: None,
        awaits_service: false,
        revision: PodRevision::Update,
        progress: UpdateProgress::Done,
        labels: markers.map(|key| (key.to_owned(), "true".to_owned())).into(),
        finalizers: Vec::new(),
        scheduled: true,
        pending: false,
        ready: true,
        ready_long_enough: true,
        update_ready: Some(true),
        has_update_gate: true,
        not_ready: Some(NotReadyKeys::default()),
        has_not_ready_gate: true,
        specified_delete: false,
        deletion_requested: false,
        deletion_sent: false,
        busy: false,
        operation: Operation::NotNeeded,
        update_rank: 0,
        deletion_cost: 0,
        spread_rank: 0,
        ready_since: 1,
        created: 0,
        restarts: 0,
    }
}

fn old(name: &str) -> SetPod {
    SetPod { revision: PodRevision::Other { in_place: true }, ..pod(name) }
}

fn without(marker: &str, mut pod: SetPod) -> SetPod {
    pod.labels.remove(marker);
    pod
}

/// A pod with a marker of the `inPlaceUpdate` hook that was put back.
fn rearmed(pod: SetPod) -> SetPod {
    let finalizers = ["example.com/in-use".to_owned()].into();
    SetPod { rearmed: Some(PutBack { finalizers, ..PutBack::default() }), ..pod }
}

fn in_state(state: State, pod: SetPod) -> SetPod {
    SetPod { state: Some(state), ..pod }
}

#[track_caller]
fn only(plan: Plan) -> PodStep {
    assert_eq!((plan.create, plan.steps.len()), (Creations::default(), 1), "{plan:?}");
    plan.steps.into_iter().next().unwrap()
}

#[test]
fn a_set_at_rest_writes_nothing() {
    assert_eq!(plan(&with_hooks(2), &[pod("a"), pod("b")]), Plan::default());
    assert_eq!(plan(&set(0), &[]), Plan::default());
}

#[test]
fn pods_are_created_with_the_revisions_of_the_partition() {
    let set = SetSpec { partition: Amount::Count(2), ..set(5) };
    assert_eq!(plan(&set, &[old("a")]).create, Creations { current: 1, update: 3 });
    // A pod that waits for its update counts as updated: another one has the old revision.
    let waits = in_state(State::PreparingUpdate, old("a"));
    assert_eq!(plan(&set, &[waits]).create, Creations { current: 2, update: 2 });
}

#[test]
fn scale_out_is_limited_by_unavailable_pods() {
    let set = SetSpec { scale_max_unavailable: Some(Amount::Count(2)), ..set(5) };
    let starting = SetPod { ready: false, ..pod("b") };
    let found = plan(&set, &[pod("a"), starting]);
    assert_eq!((found.create.update, found.creations_held), (1, 2));
    // A pod that is being deleted is no reason to wait.
    let leaving = in_state(State::PreparingDelete, pod("b"));
    let set = SetSpec { exclude_preparing_delete: true, ..set };
    let leaving = SetPod { specified_delete: true, ..leaving };
    assert_eq!(plan(&set, &[pod("a"), leaving]).create.update, 2);
}

#[test]
fn a_new_pod_is_normal_when_its_hook_confirms_it() {
    let new = without("newly-create", in_state(State::PreparingNormal, pod("a")));
    assert_eq!(plan(&with_hooks(1), std::slice::from_ref(&new)), Plan::default());
    let confirmed = in_state(State::PreparingNormal, pod("a"));
    assert_eq!(only(plan(&with_hooks(1), &[confirmed])), PodStep::to(0, State::Normal));
    // Without a hook, when it has a node. The gate is written with it.
    let new = SetPod { update_ready: None, ..new };
    let expected = PodStep { update_ready: Some(true), ..PodStep::to(0, State::Normal) };
    assert_eq!(only(plan(&set(1), std::slice::from_ref(&new))), expected);
    assert_eq!(plan(&set(1), &[SetPod { scheduled: false, ..new }]), Plan::default());
}

#[test]
fn an_update_in_place_passes_all_states() {
    let set = with_hooks(1);
    assert_eq!(only(plan(&set, &[old("a")])), PodStep::to(0, State::PreparingUpdate));
    let waits = in_state(State::PreparingUpdate, old("a"));
    assert_eq!(plan(&set, std::slice::from_ref(&waits)), Plan::default());
    let released = without("unready-blocker-inplace", waits);
    let expected = PodStep { update: true, update_ready: Some(false), ..PodStep::to(0, State::Updating) };
    assert_eq!(only(plan(&set, &[released])), expected);
    let updating = SetPod { update_ready: Some(false), ..in_state(State::Updating, pod("a")) };
    let updating = without("unready-blocker-inplace", updating);
    let running = SetPod { progress: UpdateProgress::Running, ready: false, ..updating.clone() };
    assert_eq!(plan(&set, &[running]), Plan::default());
    let expected = PodStep { update_ready: Some(true), ..PodStep::to(0, State::Updated) };
    assert_eq!(only(plan(&set, std::slice::from_ref(&updating))), expected);
    let updated = SetPod { update_ready: Some(true), ..in_state(State::Updated, updating) };
    assert_eq!(plan(&set, &[updated]), Plan::default());
    let confirmed = in_state(State::Updated, pod("a"));
    assert_eq!(only(plan(&set, &[confirmed])), PodStep::to(0, State::Normal));
}

#[test]
fn no_more_pods_are_updated_than_may_be_unavailable() {
    let set = SetSpec { max_unavailable: Amount::Count(2), ..with_hooks(4) };
    let pods = ["a", "b", "c", "d"].map(old);
    assert_eq!(plan(&set, &pods).steps.len(), 2);
    let one_down = SetPod { ready: false, ..pod("d") };
    assert_eq!(plan(&set, &[old("a"), old("b"), old("c"), one_down]).steps.len(), 1);
    // A pod that is not available costs nothing.
    let old_down = SetPod { ready: false, ..old("c") };
    let found = plan(&set, &[old("a"), old("b"), old_down, pod("d")]);
    assert_eq!(found.steps.iter().map(|step| step.pod).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn a_pod_returns_if_its_update_is_not_wanted_any_more() {
    let waits = in_state(State::PreparingUpdate, pod("a"));
    let set = with_hooks(2);
    assert_eq!(only(plan(&set, &[waits.clone(), pod("b")])), PodStep::to(0, State::Normal));
    let released = without("unready-blocker-inplace", waits);
    assert_eq!(only(plan(&set, &[released.clone(), pod("b")])), PodStep::to(0, State::Updated));
    // The partition was raised.
    let kept = SetPod { revision: PodRevision::Other { in_place: true }, ..released };
    let set = SetSpec { partition: Amount::Count(2), ..set };
    assert_eq!(only(plan(&set, &[kept.clone(), old("b")])), PodStep::to(0, State::Updated));
    let paused = SetSpec { paused: true, ..set };
    assert_eq!(plan(&paused, &[kept, old("b")]), Plan::default());
}

#[test]
fn nobody_stays_not_ready() {
    let mark = |hook: Option<Hook>| hook.map(|hook| Hook { mark_not_ready: true, ..hook });
    let mut set = with_hooks(1);
    if let Some(lifecycle) = &mut set.lifecycle {
        lifecycle.in_place_update = mark(lifecycle.in_place_update.take());
        lifecycle.pre_delete = mark(lifecycle.pre_delete.take());
    }
    let update = NotReadyKeys { pre_update: true, ..NotReadyKeys::default() };
    assert_eq!(only(plan(&set, &[old("a")])).not_ready, Some(update));
    let waits = SetPod { not_ready: Some(update), ..in_state(State::PreparingUpdate, pod("a")) };
    let step = only(plan(&set, std::slice::from_ref(&waits)));
    assert_eq!(
        (step.state, step.not_ready),
        (Some(State::Normal), Some(NotReadyKeys::default())),
        "reverted"
    );
    let hook_gone = SetSpec { lifecycle: None, ..set.clone() };
    let waits = SetPod { revision: PodRevision::Other { in_place: true }, ..waits };
    let step = only(plan(&hook_gone, &[waits]));
    assert_eq!((step.state, step.not_ready), (Some(State::Updating), Some(NotReadyKeys::default())));
    let delete = NotReadyKeys { pre_delete: true, ..NotReadyKeys::default() };
    let none = SetSpec { replicas: 0, ..set.clone() };
    assert_eq!(only(plan(&none, &[pod("a")])).not_ready, Some(delete));
    let leaving = SetPod {
        not_ready: Some(delete),
        previous: Some(State::Normal),
        ..in_state(State::PreparingDelete, pod("a"))
    };
    assert_eq!(only(plan(&set, &[leaving])).not_ready, Some(NotReadyKeys::default()), "cancelled");
}

#[test]
fn a_new_template_does_not_skip_pre_normal() {
    let set = with_hooks(1);
    let new = without("newly-create", in_state(State::PreparingNormal, old("a")));
    let step = only(plan(&set, std::slice::from_ref(&new)));
    assert_eq!((step.state, step.unconfirmed), (Some(State::PreparingUpdate), Some(true)));
    let updating = SetPod { unconfirmed: true, update_ready: Some(false), ..in_state(State::Updating, new) };
    let updating = SetPod { revision: PodRevision::Update, ..updating };
    let step = only(plan(&set, &[updating]));
    assert_eq!((step.state, step.unconfirmed), (Some(State::PreparingNormal), Some(false)));
}

#[test]
fn a_newer_template_asks_the_hook_again() {
    let set = with_hooks(1);
    let updated = without("unready-blocker-inplace", in_state(State::Updated, old("a")));
    let step = only(plan(&set, std::slice::from_ref(&updated)));
    assert_eq!((step.state, step.rearm), (Some(State::PreparingUpdate), Some(Rearm::Begin)));
    // The operator has not confirmed the last update when the template is reverted.
    let waits = rearmed(in_state(State::PreparingUpdate, old("a")));
    let reverted = SetPod { revision: PodRevision::Update, ..waits.clone() };
    let expected = PodStep { rearm: Some(Rearm::End), ..PodStep::to(0, State::Updated) };
    assert_eq!(only(plan(&set, std::slice::from_ref(&reverted))), expected);
    let unconfirmed = without("newly-create", SetPod { unconfirmed: true, ..reverted.clone() });
    assert_eq!(only(plan(&set, &[unconfirmed])), expected, "one hook after the other");
    let ended = PodStep { rearm: Some(Rearm::End), ..PodStep::to(0, State::Normal) };
    assert_eq!(only(plan(&self::set(1), &[reverted])), ended, "the hook was removed");
    let released = without("unready-blocker-inplace", waits);
    let step = only(plan(&set, &[released]));
    assert!(step.update && step.rearm == Some(Rearm::End), "{step:?}");
    // It has confirmed the last update.
    let step = only(plan(&set, &[in_state(State::Updated, old("a"))]));
    assert_eq!((step.state, step.rearm), (Some(State::PreparingUpdate), None));
    // While it is updated, the operator has released it already.
    let updating = SetPod { update_ready: Some(false), ..in_state(State::Updating, updated) };
    let step = only(plan(&set, &[updating]));
    assert!(step.state.is_none() && step.update && step.rearm.is_none(), "{step:?}");
}

#[test]
fn a_deletion_waits_for_its_hook() {
    let set = with_hooks(1);
    let step = only(plan(&set, &[pod("a"), SetPod { deletion_cost: -1, ..pod("b") }]));
    let expected =
        PodStep { previous: Some(Previous::Store(State::Normal)), ..PodStep::to(1, State::PreparingDelete) };
    assert_eq!(step, expected);
    let leaving = SetPod { previous: Some(State::Normal), ..in_state(State::PreparingDelete, pod("b")) };
    assert_eq!(plan(&set, &[pod("a"), leaving.clone()]), Plan::default());
    let released = without("unready-blocker-delete", leaving.clone());
    assert!(only(plan(&set, &[pod("a"), released])).delete);
    // One pod that its operator does not release blocks no other.
    let zero = SetSpec { replicas: 0, ..set.clone() };
    assert_eq!(only(plan(&zero, &[pod("a"), leaving.clone()])).pod, 0);
    // It is cancelled: the pod returns to its previous state.
    let two = SetSpec { replicas: 2, ..set };
    let back = |pod_back: SetPod| only(plan(&two, &[pod("a"), pod_back]));
    let forget = Some(Previous::Forget);
    assert_eq!(back(leaving.clone()), PodStep { previous: forget, ..PodStep::to(1, State::Normal) });
    let offline = without("newly-create", leaving.clone());
    assert_eq!(back(offline).state, Some(State::PreparingNormal), "its operator brings it back");
    let updated = SetPod { previous: Some(State::Updated), ..leaving };
    assert_eq!(back(updated).state, Some(State::Updated));
}

#[test]
fn chosen_pods_are_replaced_unless_the_replicas_are_lowered() {
    let set = set(2);
    let chosen = |pod: SetPod| SetPod { specified_delete: true, ..pod };
    let step = only(plan(&set, &[pod("a"), chosen(pod("b"))]));
    assert!(step.delete && step.pod == 1, "{step:?}");
    assert_eq!(plan(&set, &[pod("a")]).create.update, 1);
    let named = SetSpec { pods_to_delete: BTreeSet::from(["b".to_owned()]), replicas: 1, ..set.clone() };
    let step = only(plan(&named, &[pod("a"), pod("b")]));
    assert!(step.delete && step.pod == 1, "{step:?}");
    // A replacement comes first if there may be one more pod.
    let surge = SetSpec { max_surge: Amount::Count(1), max_unavailable: Amount::Count(0), ..set };
    let found = plan(&surge, &[pod("a"), chosen(pod("b"))]);
    assert_eq!((found.create.update, found.steps), (1, Vec::new()));
    let found = plan(&surge, &[pod("a"), chosen(pod("b")), pod("c")]);
    assert!(only(found).delete);
}

#[test]
fn pods_that_are_being_deleted_do_not_count_if_they_are_excluded() {
    let set = SetSpec { exclude_preparing_delete: true, ..with_hooks(2) };
    let leaving = SetPod { previous: Some(State::Normal), ..in_state(State::PreparingDelete, pod("c")) };
    assert_eq!(plan(&set, &[pod("a"), pod("b"), leaving.clone()]), Plan::default());
    let found = plan(&set, &[pod("a"), SetPod { specified_delete: true, ..leaving.clone() }]);
    assert_eq!(found.create.update, 1, "its replacement does not wait for the hook");
    let found = only(plan(&set, &[pod("a"), leaving]));
    assert_eq!(found.state, Some(State::Normal), "it is needed again");
}

#[test]
fn a_pod_that_cannot_be_changed_in_place_is_recreated_after_its_hook() {
    let set = with_hooks(1);
    let other = SetPod { revision: PodRevision::Other { in_place: false }, ..pod("a") };
    let step = only(plan(&set, std::slice::from_ref(&other)));
    assert!(step.state == Some(State::PreparingDelete) && step.specify, "{step:?}");
    let released = without("unready-blocker-delete", other.clone());
    assert!(only(plan(&set, &[released])).delete);
    let in_place_only = SetSpec { update: UpdateKind::InPlaceOnly, ..set };
    let found = plan(&in_place_only, &[other]);
    assert_eq!((found.steps.len(), found.not_in_place), (0, vec![0]));
}

#[test]
fn a_surge_comes_first_if_no_pod_may_be_unavailable() {
    let set = SetSpec { max_surge: Amount::Count(1), max_unavailable: Amount::Count(0), ..with_hooks(2) };
    let found = plan(&set, &[old("a"), old("b")]);
    assert_eq!((found.create, found.steps.len()), (Creations { current: 0, update: 1 }, 0));
    let new = without("newly-create", in_state(State::PreparingNormal, pod("c")));
    assert_eq!(plan(&set, &[old("a"), old("b"), new]), Plan::default(), "it is not confirmed");
    let step = only(plan(&set, &[old("a"), old("b"), pod("c")]));
    assert_eq!(step.state, Some(State::PreparingUpdate));
    // In place, one pod may be unavailable: none is created for nothing.
    let found = plan(&SetSpec { max_unavailable: Amount::Count(1), ..set }, &[old("a"), old("b")]);
    assert_eq!((found.create, found.steps.len()), (Creations::default(), 1));
}
