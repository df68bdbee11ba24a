//! The deletion of a pod.

use super::draft::Draft;
use super::hook::holds;
use super::pod::SetPod;
use super::state::State;
use super::step::{PodStep, Previous};

/// Plans the next step of a pod that is deleted. `replaces` is true if it is deleted to get another revision.
pub(super) fn remove(draft: &mut Draft<'_>, index: usize, pod: &SetPod, replaces: bool) {
    draft.leave(index);
    // Podward deletes it when all consumers have released it.
    let is_requested = pod.deletion_requested || pod.deletion_sent;
    let is_held = holds(draft.set.hooks().pre_delete.as_ref(), pod, State::PreparingDelete);
    if pod.is_preparing_delete() {
        if !is_held && !is_requested {
            draft.step(PodStep { delete: true, ..PodStep::of(index) });
        }
        return;
    }
    if !draft.take(pod) {
        return;
    }
    match is_held {
        true => {
            let previous = Some(Previous::Store(pod.state.unwrap_or(State::Normal)));
            // Without the label, the deletion would be cancelled: there are not too many pods.
            let specify = replaces && !pod.specified_delete;
            draft.step(PodStep { previous, specify, ..PodStep::to(index, State::PreparingDelete) });
        }
        false if is_requested => {}
        false => draft.step(PodStep { delete: true, ..PodStep::of(index) }),
    }
}
