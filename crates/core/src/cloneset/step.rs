//! What is done with a pod.

use super::pod::{NotReadyKeys, Operation};
use super::state::State;

/// What happens to the operation of PodOpsLifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStep {
    /// It is begun.
    Begin,
    /// It is finished: the containers are replaced.
    Finish,
    /// It is cancelled: nothing was replaced.
    Cancel,
}

impl OperationStep {
    /// Returns the step that begins the operation that is needed to change a pod, if it was not begun. One that is finished
    /// may never end, because the pod does not get Ready: it is begun again.
    pub(super) fn begin(operation: Operation) -> Option<Self> {
        matches!(operation, Operation::None | Operation::Finished).then_some(OperationStep::Begin)
    }
}

/// What happens to the stored state to which a pod returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// It is stored.
    Store(State),
    /// It is removed.
    Forget,
}

/// What happens to the markers of the `inPlaceUpdate` hook of a pod whose last update it has not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearm {
    /// Those that are missing are put back and stored: the operator is asked to release the pod again.
    Begin,
    /// They are not stored any more, because the operator was not asked: what was stored has no meaning.
    Forget,
    /// Those that were put back and are left are taken away, and are not stored any more: the operator has released the pod, or
    /// is asked to confirm the last update, as before.
    End,
}

/// What is done with one pod. The conditions are written first where they take the pod out of service, and last where they
/// put it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStep {
    /// The index of the pod in the pods of the plan.
    pub pod: usize,
    /// The state that is written.
    pub state: Option<State>,
    /// The condition `InPlaceUpdateReady` that is written.
    pub update_ready: Option<bool>,
    /// Who keeps the pod out of service from now on.
    pub not_ready: Option<NotReadyKeys>,
    /// What happens to the stored state to which it returns.
    pub previous: Option<Previous>,
    /// Whether it is stored that the `preNormal` hook has never confirmed the pod.
    pub unconfirmed: Option<bool>,
    /// What happens to the markers of the `inPlaceUpdate` hook.
    pub rearm: Option<Rearm>,
    /// True if the pod gets the label `specified-delete`.
    pub specify: bool,
    /// True if the pod gets the revision of the template in place.
    pub update: bool,
    /// True if the next containers get the revision that the pod has already.
    pub next_batch: bool,
    /// The markers that must leave the pod before it is deleted, as they are stored from now on.
    pub delete_hold: Option<Option<String>>,
    /// True if the pod is deleted.
    pub delete: bool,
    /// What happens to the operation.
    pub operation: Option<OperationStep>,
}

impl PodStep {
    pub(super) fn of(pod: usize) -> Self {
        Self { pod, ..Self::default() }
    }

    pub(super) fn to(pod: usize, state: State) -> Self {
        Self { pod, state: Some(state), ..Self::default() }
    }

    /// Returns true if it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::of(self.pod)
    }
}
