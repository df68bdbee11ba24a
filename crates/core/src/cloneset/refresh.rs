//! Transitions that need no choice between pods.

use super::draft::Draft;
use super::hook::{goes_on, is_confirmed};
use super::need::is_unconfirmed;
use super::pod::{NotReadyKeys, Operation, SetPod, UpdateProgress};
use super::set::SetSpec;
use super::state::State;
use super::step::{OperationStep, PodStep, Rearm};

/// Plans the transitions of pods without a step, and completes the steps of all pods with their conditions.
pub(super) fn plan(draft: &mut Draft<'_>) {
    for (index, pod) in draft.pods.iter().enumerate() {
        let leaves = draft.leaving.get(index) == Some(&true);
        let Some(place) = draft.steps.get_mut(index) else { continue };
        if place.is_none() && !leaves {
            *place = transition(draft.set, index, pod);
        }
        let step = place.get_or_insert_with(|| PodStep::of(index));
        if !step.delete {
            conditions(draft.set, pod, step);
            delete_hold(draft.set, pod, step);
            let is_stale = pod.rearmed.is_some() && pod.asked_again().is_none();
            if is_stale && step.rearm.is_none() && !step.is_empty() {
                step.rearm = Some(Rearm::Forget);
            }
        }
    }
}

fn transition(set: &SetSpec, index: usize, pod: &SetPod) -> Option<PodStep> {
    let hooks = set.hooks();
    let to = |state| {
        let forget = pod.unconfirmed && matches!(state, State::Normal | State::PreparingNormal);
        PodStep { unconfirmed: forget.then_some(false), ..PodStep::to(index, state) }
    };
    match pod.state? {
        State::PreparingNormal => {
            let hook = hooks.pre_normal.as_ref();
            let is_normal = is_confirmed(hook, pod, State::PreparingNormal) && !pod.awaits_service;
            (is_normal && (hook.is_some() || pod.scheduled)).then(|| to(State::Normal))
        }
        State::Updating => match pod.progress {
            UpdateProgress::Grace | UpdateProgress::Running => None,
            UpdateProgress::NextBatch if pod.may_change() => {
                Some(PodStep { next_batch: true, ..PodStep::of(index) })
            }
            // The operation was cancelled: consumers may use the pod again.
            UpdateProgress::NextBatch => {
                Some(PodStep { operation: OperationStep::begin(pod.operation), ..PodStep::of(index) })
            }
            UpdateProgress::Done => {
                let hook = hooks.in_place_update.as_ref();
                let operation = match pod.operation {
                    Operation::Granted => Some(OperationStep::Finish),
                    // Nothing more is replaced.
                    Operation::Begun => Some(OperationStep::Cancel),
                    Operation::NotNeeded | Operation::None | Operation::Finished => None,
                };
                let is_confirmed = hook.is_some_and(|hook| hook.confirms(pod));
                let state = match set.lifecycle {
                    _ if is_unconfirmed(set, pod) => State::PreparingNormal,
                    None if has_ended(pod) => State::Normal,
                    Some(_) if is_confirmed && has_ended(pod) => State::Normal,
                    _ => State::Updated,
                };
                Some(PodStep { operation, ..to(state) })
            }
        },
        State::Updated => {
            let is_normal =
                is_confirmed(hooks.in_place_update.as_ref(), pod, State::Updated) && has_ended(pod);
            is_normal
                .then(|| to(if is_unconfirmed(set, pod) { State::PreparingNormal } else { State::Normal }))
        }
        State::Normal | State::PreparingUpdate | State::PreparingDelete => None,
    }
}

/// Returns true if no operation keeps the pod out of service.
fn has_ended(pod: &SetPod) -> bool {
    matches!(pod.operation, Operation::NotNeeded | Operation::None)
}

/// Adds the markers that hold deletions by others, if they differ from those of the pod.
fn delete_hold(set: &SetSpec, pod: &SetPod, step: &mut PodStep) {
    let late = set.hooks().pre_delete.as_ref().is_some_and(|it| goes_on(it, pod, State::PreparingDelete));
    let wanted = set.delete_hold.as_ref().filter(|_| !late);
    if wanted != pod.delete_hold.as_ref() {
        step.delete_hold = Some(wanted.cloned());
    }
}

/// Adds the conditions that follow from the state after the step, if they differ from those of the pod.
fn conditions(set: &SetSpec, pod: &SetPod, step: &mut PodStep) {
    let state = step.state.or(pod.state);
    let effective = match state {
        Some(State::PreparingDelete) => match step.previous {
            Some(super::step::Previous::Store(previous)) => Some(previous),
            _ => pod.previous,
        },
        state => state,
    };
    let replaces = effective == Some(State::Updating);
    // A pod without a node has no kubelet that could see the condition.
    if pod.has_update_gate && pod.update_ready != Some(!replaces) && (pod.scheduled || replaces) {
        step.update_ready = Some(!replaces);
    }
    let hooks = set.hooks();
    let marks = |hook: &Option<super::hook::Hook>| hook.as_ref().is_some_and(|hook| hook.mark_not_ready);
    // Only until the hook has confirmed it: Podward may need a pod that is Ready.
    let holds = |hook: &Option<super::hook::Hook>, within: State| {
        effective == Some(within)
            && hook.as_ref().is_some_and(|it| it.hold_traffic && !is_confirmed(Some(it), pod, within))
    };
    // The hook has not confirmed the last update, whatever markers the pod has.
    let rearmed = match step.rearm {
        Some(Rearm::Begin) => true,
        Some(Rearm::End) => state == Some(State::Updated),
        Some(Rearm::Forget) => false,
        None => pod.asked_again().is_some(),
    };
    let holds_rearmed = rearmed && hooks.in_place_update.as_ref().is_some_and(|hook| hook.hold_traffic);
    let wanted = NotReadyKeys {
        pre_delete: state == Some(State::PreparingDelete) && marks(&hooks.pre_delete),
        pre_update: matches!(effective, Some(State::PreparingUpdate | State::Updating))
            && marks(&hooks.in_place_update),
        pre_normal: holds(&hooks.pre_normal, State::PreparingNormal),
        post_update: holds_rearmed || holds(&hooks.in_place_update, State::Updated),
    };
    let holds = wanted != NotReadyKeys::default();
    if pod.has_not_ready_gate && pod.not_ready != Some(wanted) && (pod.scheduled || holds) {
        step.not_ready = Some(wanted);
    }
}
