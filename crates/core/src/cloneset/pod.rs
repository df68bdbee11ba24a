//! What a CloneSet knows about one of its pods.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::put_back::PutBack;
use super::state::State;

/// The revision of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRevision {
    /// That of the template.
    Update,
    /// Another one.
    Other {
        /// True if the pod can get that of the template without being recreated.
        in_place: bool,
    },
}

impl PodRevision {
    /// Returns true if the pod can get the revision of the template without being recreated.
    pub(super) fn is_in_place(self) -> bool {
        matches!(self, PodRevision::Other { in_place: true })
    }
}

/// The progress of the last in-place update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateProgress {
    /// There is none that has not ended.
    #[default]
    Done,
    /// Its grace period has not passed.
    Grace,
    /// Containers are replaced.
    Running,
    /// The next containers can be replaced.
    NextBatch,
}

/// The operation of PodOpsLifecycle that the set uses for an in-place update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// The pod has not opted in.
    #[default]
    NotNeeded,
    /// It was not begun.
    None,
    /// It waits for its permission.
    Begun,
    /// The pod may be changed.
    Granted,
    /// The set has finished it, and Podward puts the pod back into service.
    Finished,
}

/// Who keeps a pod out of service, in the condition `KruisePodReady`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotReadyKeys {
    /// The `preDelete` hook.
    pub pre_delete: bool,
    /// The `inPlaceUpdate` hook, before and during the update.
    pub pre_update: bool,
    /// The `preNormal` hook.
    pub pre_normal: bool,
    /// The `inPlaceUpdate` hook, after the update.
    pub post_update: bool,
}

/// A pod of a set that is neither finished nor terminating.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPod {
    /// The name.
    pub name: String,
    /// The state. `None` if the label is missing or invalid.
    pub state: Option<State>,
    /// The state to which it returns if its deletion is cancelled.
    pub previous: Option<State>,
    /// True if the deadline of the hook for which it waits in its state has passed.
    pub past_deadline: bool,
    /// True if it has opted in, and Podward has not put it into service yet.
    pub awaits_service: bool,
    /// The markers that must leave it before it is deleted, as they are stored.
    pub delete_hold: Option<String>,
    /// True if it left PreparingNormal for an update, and the `preNormal` hook has never confirmed it.
    pub unconfirmed: bool,
    /// The markers of the `inPlaceUpdate` hook that were put back before it had confirmed the last update. Without a meaning if
    /// the pod does not wait to be released.
    pub rearmed: Option<PutBack>,
    /// The revision.
    pub revision: PodRevision,
    /// The progress of the last in-place update.
    pub progress: UpdateProgress,
    /// The labels, at least those that the set names.
    pub labels: BTreeMap<String, String>,
    /// The finalizers, at least those that the set names.
    pub finalizers: Vec<String>,
    /// True if it has a node.
    pub scheduled: bool,
    /// True if its phase is Pending.
    pub pending: bool,
    /// True if it is Ready.
    pub ready: bool,
    /// True if it was Ready for `minReadySeconds`.
    pub ready_long_enough: bool,
    /// The condition `InPlaceUpdateReady`. `None` if it was never written.
    pub update_ready: Option<bool>,
    /// True if it has the gate of `InPlaceUpdateReady`.
    pub has_update_gate: bool,
    /// Who keeps it out of service. `None` if the condition `KruisePodReady` was never written.
    pub not_ready: Option<NotReadyKeys>,
    /// True if it has the gate of `KruisePodReady`.
    pub has_not_ready_gate: bool,
    /// True if it has the label `specified-delete`.
    pub specified_delete: bool,
    /// True if somebody has requested its deletion from Podward, which takes it out of service now.
    pub deletion_requested: bool,
    /// True if the set has just deleted it and was told to wait. A request may be recorded that is not seen yet. Until
    /// it is, the pod stays available, is not deleted again, and comes first when pods are deleted.
    pub deletion_sent: bool,
    /// True if the application must not be interrupted.
    pub busy: bool,
    /// The operation for an in-place update.
    pub operation: Operation,
    /// The pods with the lowest rank are updated first.
    pub update_rank: i128,
    /// The pods with the lowest cost are deleted first.
    pub deletion_cost: i32,
    /// The number of pods of the set on its node that come before it: pods with higher ones are deleted first.
    pub spread_rank: u32,
    /// Since when it is Ready, in seconds. 0 if it is not.
    pub ready_since: i64,
    /// When it was created, in seconds.
    pub created: i64,
    /// The restarts of its containers.
    pub restarts: u32,
}

impl SetPod {
    /// Returns true if it counts as available.
    #[must_use]
    pub fn is_available(&self) -> bool {
        matches!(self.state, None | Some(State::Normal))
            && !self.deletion_requested
            && self.is_ready()
            && self.ready_long_enough
    }

    /// Returns true if it is Ready, and none of its containers is replaced. The kubelet sees the latter some time later.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready && self.update_ready != Some(false)
    }

    /// Returns true if it has the revision of the template.
    #[must_use]
    pub fn is_updated(&self) -> bool {
        self.revision == PodRevision::Update
    }

    /// Returns true if an update of it in place has begun, and has not ended. It gets the next revision before other pods.
    pub(super) fn is_update_begun(&self) -> bool {
        matches!(self.state, Some(State::PreparingUpdate | State::Updating | State::Updated))
    }

    /// Returns the markers that were put back if the `inPlaceUpdate` hook is asked to release the pod, and has not confirmed the
    /// last update.
    pub(super) fn asked_again(&self) -> Option<&PutBack> {
        let state = if self.is_preparing_delete() { self.previous } else { self.state };
        self.rearmed.as_ref().filter(|_| state == Some(State::PreparingUpdate))
    }

    /// Returns true if no operation is needed to change it, or the operation has its permission.
    pub(super) fn may_change(&self) -> bool {
        matches!(self.operation, Operation::NotNeeded | Operation::Granted)
    }

    /// Returns true if its deletion was begun.
    #[must_use]
    pub fn is_preparing_delete(&self) -> bool {
        self.state == Some(State::PreparingDelete)
    }

    /// Returns what pods are sorted by when some of them are deleted: the lowest first.
    pub(super) fn deletion_order(&self) -> impl Ord + use<> {
        (
            (!self.deletion_sent, self.scheduled, !self.pending, self.is_available(), self.ready),
            (self.busy, self.deletion_cost),
            Reverse(self.spread_rank),
            (Reverse(self.ready_since), Reverse(self.restarts), Reverse(self.created)),
            self.name.clone(),
        )
    }

    /// Returns what pods are sorted by when some of them are updated: the lowest first. Those whose update was begun come
    /// first.
    pub(super) fn update_order(&self) -> impl Ord + use<> {
        let begun = match self.state {
            Some(State::Updating | State::PreparingUpdate) => 0,
            Some(State::Updated) => 1,
            _ => 2,
        };
        let idle = (self.scheduled, !self.pending, self.is_available(), self.ready);
        (begun, self.update_rank, idle, self.busy, Reverse(self.created), self.name.clone())
    }
}
