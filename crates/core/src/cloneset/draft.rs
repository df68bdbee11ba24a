//! A plan, and one that is not complete.

use super::pod::SetPod;
use super::set::SetSpec;
use super::step::PodStep;

/// The number of pods that are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Creations {
    /// With the revision that the pods had before.
    pub current: u32,
    /// With the revision of the template.
    pub update: u32,
}

/// What is done next. All of it can be done at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The pods that are created.
    pub create: Creations,
    /// The number of pods that are missing and wait for others to become available, because of
    /// `scaleStrategy.maxUnavailable`.
    pub creations_held: u32,
    /// What is done with pods: at most one step for each.
    pub steps: Vec<PodStep>,
    /// Pods that cannot get the revision of the template in place, in a set that changes pods in place only.
    pub not_in_place: Vec<usize>,
}

/// A plan that is not complete.
pub(super) struct Draft<'a> {
    pub(super) set: &'a SetSpec,
    pub(super) pods: &'a [SetPod],
    /// By pod.
    pub(super) steps: Vec<Option<PodStep>>,
    /// The pods that are being deleted, or wait for it.
    pub(super) leaving: Vec<bool>,
    /// The number of available pods that may become unavailable.
    budget: i64,
    pub(super) plan: Plan,
}

impl<'a> Draft<'a> {
    pub(super) fn new(set: &'a SetSpec, pods: &'a [SetPod]) -> Self {
        // Those that were just deleted may be on their way out.
        let available = pods.iter().filter(|pod| pod.is_available() && !pod.deletion_sent).count();
        let least = i64::from(set.replicas) - i64::from(set.max_unavailable());
        Self {
            set,
            pods,
            steps: vec![None; pods.len()],
            leaving: vec![false; pods.len()],
            budget: length(available) - least,
            plan: Plan::default(),
        }
    }

    /// Returns the number of available pods that may become unavailable.
    pub(super) fn budget(&self) -> i64 {
        self.budget
    }

    /// Returns whether a pod may become unavailable, and counts it.
    pub(super) fn take(&mut self, pod: &SetPod) -> bool {
        if !pod.is_available() || pod.deletion_sent {
            return true;
        }
        let may = self.budget > 0;
        self.budget -= i64::from(may);
        may
    }

    /// Returns the pods that are not being deleted, with their indexes.
    pub(super) fn staying(&self) -> impl Iterator<Item = (usize, &'a SetPod)> {
        let staying = self.pods.iter().enumerate().zip(&self.leaving);
        staying.filter_map(|(pod, leaves)| (!leaves).then_some(pod))
    }

    /// Sets the step of a pod.
    pub(super) fn step(&mut self, step: PodStep) {
        let pod = step.pod;
        if let Some(place) = self.steps.get_mut(pod) {
            *place = Some(step);
        }
    }

    pub(super) fn leave(&mut self, pod: usize) {
        if let Some(leaves) = self.leaving.get_mut(pod) {
            *leaves = true;
        }
    }
}

/// Returns a number of pods as a signed one.
pub(super) fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
