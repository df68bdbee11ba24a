//! Which pods get the revision of the template.

use super::draft::{Draft, length};
use super::hook::holds;
use super::need::{is_unconfirmed, missing, recreates};
use super::pod::{Operation, SetPod};
use super::put_back::PutBack;
use super::removal::remove;
use super::scale::creatable_updates;
use super::scatter::scatter;
use super::state::State;
use super::step::{OperationStep, PodStep, Rearm};

/// Plans updates, and returns pods that wait for an update that they do not get.
pub(super) fn plan(draft: &mut Draft<'_>) {
    let set = draft.set;
    let chosen = if set.updates() { choose(draft) } else { Vec::new() };
    let mut started = length(draft.staying().filter(|(_, pod)| is_in_update(pod)).count());
    let bound = i64::from(set.max_unavailable()) + length(draft.pods.len()) - i64::from(set.replicas);
    // No pod is missing for ever because the pods that exist do not get Ready.
    let bound = bound.max(1);
    for (index, pod) in &chosen {
        let in_place = set.in_place() && pod.revision.is_in_place();
        let begun = pod.is_update_begun();
        // Pods that are not available cost nothing, but there may be many, and the new revision may be bad.
        if !begun && !pod.is_available() && started >= bound {
            continue;
        }
        match in_place {
            true => change(draft, *index, pod),
            false => remove(draft, *index, pod, true),
        }
        let has_begun = draft.steps.get(*index).is_some_and(Option::is_some);
        started += i64::from(has_begun && !begun);
    }
    let is_chosen = |index: usize| chosen.iter().any(|(it, _)| *it == index);
    let waiting: Vec<_> =
        draft.staying().filter(|(_, pod)| pod.state == Some(State::PreparingUpdate)).collect();
    for (index, pod) in waiting {
        if (pod.is_updated() || !set.paused) && !is_chosen(index) {
            give_back(draft, index, pod);
        }
    }
}

/// Returns the pods that get the revision of the template next.
fn choose<'a>(draft: &mut Draft<'a>) -> Vec<(usize, &'a SetPod)> {
    let set = draft.set;
    let updated = draft.staying().filter(|(_, pod)| pod.is_updated()).count();
    let mut others: Vec<_> =
        draft.staying().filter(|(_, pod)| !pod.is_updated() && !pod.is_preparing_delete()).collect();
    if !recreates(set) {
        let is_impossible = |pod: &SetPod| !pod.revision.is_in_place();
        let impossible =
            others.iter().filter(|(_, pod)| is_impossible(pod)).map(|(index, _)| *index).collect();
        draft.plan.not_in_place = impossible;
        others.retain(|(_, pod)| !is_impossible(pod));
    }
    others.sort_by_cached_key(|(_, pod)| pod.update_order());
    let first = others.iter().filter(|(_, pod)| pod.is_update_begun()).count();
    let rest = others.split_off(first);
    others.extend(scatter(rest, &set.scatter));
    let missing = missing(set, updated) - created(draft);
    others.truncate(usize::try_from(missing).unwrap_or(0));
    others
}

/// Returns the number of pods that are created with the revision of the template: in this plan, and when the pods are gone
/// that are being deleted.
fn created(draft: &Draft<'_>) -> i64 {
    let replaced = i64::from(draft.set.replicas) - length(draft.staying().count());
    replaced.min(i64::from(creatable_updates(draft))).max(i64::from(draft.plan.create.update))
}

/// Returns true if the pod is not available because of an update.
fn is_in_update(pod: &SetPod) -> bool {
    !pod.is_available() && (pod.is_updated() || pod.is_update_begun())
}

/// Plans the next step of a pod that is changed in place.
fn change(draft: &mut Draft<'_>, index: usize, pod: &SetPod) {
    let hook = draft.set.hooks().in_place_update.as_ref();
    let (begin, may_change) = (OperationStep::begin(pod.operation), pod.may_change());
    match pod.state {
        Some(State::PreparingDelete) => {}
        // The hook has released it already. If its operation was cancelled, consumers may use it again.
        Some(State::Updating) => {
            draft.step(PodStep { update: may_change, operation: begin, ..PodStep::of(index) });
        }
        Some(State::PreparingUpdate) => {
            let step = match may_change && !holds(hook, pod, State::PreparingUpdate) {
                true => {
                    let rearm = pod.rearmed.is_some().then_some(Rearm::End);
                    PodStep { update: true, rearm, ..PodStep::to(index, State::Updating) }
                }
                false => PodStep { operation: begin, ..PodStep::of(index) },
            };
            draft.step(step);
        }
        None | Some(State::PreparingNormal | State::Normal | State::Updated) => {
            if !draft.take(pod) {
                return;
            }
            let unconfirmed = is_unconfirmed(draft.set, pod).then_some(true).filter(|_| !pod.unconfirmed);
            // The operator that should have confirmed the last update is asked to release the pod for this one.
            let rearm = pod.state == Some(State::Updated) && hook.is_some_and(|hook| !hook.confirms(pod));
            let step = match may_change && !rearm && !holds(hook, pod, State::PreparingUpdate) {
                true => PodStep { update: true, unconfirmed, ..PodStep::to(index, State::Updating) },
                false => {
                    let rearm = rearm.then_some(Rearm::Begin);
                    let to = PodStep::to(index, State::PreparingUpdate);
                    PodStep { operation: begin, rearm, unconfirmed, ..to }
                }
            };
            draft.step(step);
        }
    }
}

/// Returns a pod from PreparingUpdate: the template was reverted, or other pods are updated instead.
fn give_back(draft: &mut Draft<'_>, index: usize, pod: &SetPod) {
    let hook = draft.set.hooks().in_place_update.as_ref();
    // Nobody knows which markers would have to be taken away: the operator does that.
    let is_unknown = pod.rearmed.as_ref().is_some_and(PutBack::is_unknown);
    if is_unknown && holds(hook, pod, State::PreparingUpdate) {
        return;
    }
    let state = match hook {
        // The operator has not confirmed the last update, and is asked to do so, as before.
        Some(_) if pod.rearmed.is_some() => State::Updated,
        _ if pod.unconfirmed && is_unconfirmed(draft.set, pod) => State::PreparingNormal,
        // The operator has released it, and is asked to bring it back.
        Some(hook) if !hook.confirms(pod) => State::Updated,
        _ => State::Normal,
    };
    let operation = match pod.operation {
        Operation::Begun | Operation::Granted => Some(OperationStep::Cancel),
        Operation::NotNeeded | Operation::None | Operation::Finished => None,
    };
    let unconfirmed = (pod.unconfirmed && state != State::Updated).then_some(false);
    let rearm = pod.rearmed.is_some().then_some(Rearm::End);
    draft.step(PodStep { operation, unconfirmed, rearm, ..PodStep::to(index, state) });
}
