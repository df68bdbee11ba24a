//! What steps do to stored pods.

use podward_core::cloneset::{
    Hook, Lifecycle, Operation, OperationStep, PodStep, Previous, Rearm, SetPod, State,
};

use super::{StoredPod, StoredSet};

/// Returns true if the state may follow that of the pod, and exactly the hooks are asked that hold the pod.
pub(super) fn follows(pod: &SetPod, step: &PodStep, next: State, hooks: &Lifecycle) -> bool {
    use State::{Normal, PreparingDelete, PreparingNormal, PreparingUpdate, Updated, Updating};
    let holds = |hook: &Option<Hook>| hook.as_ref().is_some_and(|hook| hook.holds(pod));
    let confirms = |hook: &Option<Hook>| hook.as_ref().is_none_or(|hook| hook.confirms(pod));
    let goes_on = |hook: &Option<Hook>| pod.past_deadline && hook.as_ref().is_some_and(|hook| hook.proceeds);
    let waits_for_permission =
        matches!(pod.operation, Operation::None | Operation::Begun | Operation::Finished);
    match (pod.state, next) {
        (Some(PreparingDelete), PreparingDelete) => false,
        // Asked only if it holds the pod.
        (_, PreparingDelete) => holds(&hooks.pre_delete),
        // Its deletion was cancelled.
        (Some(PreparingDelete), _) => pod.previous.is_none_or(|it| it == next) || next == PreparingNormal,
        (None | Some(PreparingNormal | Normal | Updated), PreparingUpdate) => {
            holds(&hooks.in_place_update) || waits_for_permission || step.rearm == Some(Rearm::Begin)
        }
        (None | Some(PreparingNormal | Normal | PreparingUpdate | Updated), Updating) => step.update,
        (Some(PreparingNormal), Normal) => confirms(&hooks.pre_normal) || goes_on(&hooks.pre_normal),
        (Some(Updating), Updated | Normal | PreparingNormal) => true,
        (Some(Updated), Normal | PreparingNormal) => {
            confirms(&hooks.in_place_update) || goes_on(&hooks.in_place_update)
        }
        // The update is not wanted any more.
        (Some(PreparingUpdate), Normal) => {
            confirms(&hooks.in_place_update) && (pod.rearmed.is_none() || hooks.in_place_update.is_none())
        }
        (Some(PreparingUpdate), Updated | PreparingNormal) => true,
        _ => false,
    }
}

/// Returns the writes of a step: conditions that take a pod out of service come first.
pub(super) fn parts(step: &PodStep) -> Vec<PodStep> {
    if step.update && step.update_ready == Some(false) {
        let first = PodStep {
            pod: step.pod,
            update_ready: Some(false),
            not_ready: step.not_ready,
            ..PodStep::default()
        };
        return vec![first, PodStep { update_ready: None, not_ready: None, ..step.clone() }];
    }
    vec![step.clone()]
}

pub(super) fn mark(pod: &mut SetPod, markers: &[&str]) {
    pod.labels.extend(markers.iter().map(|key| ((*key).to_owned(), "true".to_owned())));
}

pub(super) fn applied(stored: &StoredPod, step: &PodStep, set: &StoredSet) -> StoredPod {
    let mut stored = stored.clone();
    let pod = &mut stored.pod;
    pod.state = step.state.or(pod.state);
    pod.past_deadline &= step.state.is_none();
    pod.update_ready = step.update_ready.or(pod.update_ready);
    pod.not_ready = step.not_ready.or(pod.not_ready);
    pod.previous = match step.previous {
        Some(Previous::Store(state)) => Some(state),
        Some(Previous::Forget) => None,
        None => pod.previous,
    };
    pod.unconfirmed = step.unconfirmed.unwrap_or(pod.unconfirmed);
    pod.specified_delete |= step.specify;
    match step.rearm {
        Some(Rearm::Begin) => {
            let hook = set.spec.lifecycle.iter().find_map(|hooks| hooks.in_place_update.as_ref());
            let missing = hook.map(|hook| hook.missing(&pod.labels, &pod.finalizers)).unwrap_or_default();
            pod.labels.extend(missing.labels.clone());
            pod.rearmed = Some(missing);
        }
        Some(Rearm::End) => {
            let left = pod.rearmed.take().unwrap_or_default().left(&pod.labels, &pod.finalizers);
            left.labels.keys().for_each(|key| drop(pod.labels.remove(key)));
        }
        Some(Rearm::Forget) => pod.rearmed = None,
        None => {}
    }
    pod.operation = match step.operation {
        Some(OperationStep::Begin) => Operation::Begun,
        Some(OperationStep::Finish) => Operation::Finished,
        Some(OperationStep::Cancel) => Operation::None,
        None => pod.operation,
    };
    if step.update {
        (stored.template, stored.batches) = (set.template, set.batches);
    }
    stored.running |= step.update || step.next_batch;
    stored
}
