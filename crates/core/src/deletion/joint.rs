//! Pods that are deleted at the same time.

use super::workload::{DeletionProgress, Workload, WorkloadPod};

/// When the pods of a workload that are deleted together are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JointDeletion {
    /// Now: the pods with these names may be deleted.
    Now(Vec<String>),
    /// When the pods with these names may be deleted, too.
    With(Vec<String>),
}

impl Workload {
    /// Returns whether the pods are deleted together if a request means that the workload ends.
    ///
    /// A Job that restarts containers in their pods fails when they have been restarted too often. Its controller counts
    /// the restarts of the pods that exist, and it reports the failure only if it can delete all of them at once
    /// (`syncJob` and `pastBackoffLimitOnFailure` in kubernetes/pkg/controller/job). If one pod were gone before, its
    /// restarts would not count any more, and the Job would start again.
    #[must_use]
    pub fn ends_together(&self) -> bool {
        matches!(self, Workload::Job { counts_restarts: true, .. })
    }

    /// Returns when `uid`, which may be deleted, is deleted. It may be deleted before its drain has ended if its node is
    /// lost, so it never waits for itself.
    #[must_use]
    pub fn joint_deletion(&self, members: &[WorkloadPod], uid: &str) -> JointDeletion {
        let ends = |member: &&WorkloadPod| {
            member.request.is_some_and(|request| request.by_workload && request.ends_workload)
        };
        let ending: Vec<&WorkloadPod> = members.iter().filter(ends).collect();
        if !self.ends_together() || !ending.iter().any(|member| member.uid == uid) {
            return JointDeletion::Now(Vec::new());
        }
        let others: Vec<&WorkloadPod> = ending.into_iter().filter(|member| member.uid != uid).collect();
        let is_held = |member: &&&WorkloadPod| {
            member.request.is_some_and(|request| request.progress > DeletionProgress::Granted)
        };
        let held: Vec<String> = others.iter().filter(is_held).map(|member| member.name.clone()).collect();
        if !held.is_empty() {
            return JointDeletion::With(held);
        }
        JointDeletion::Now(others.iter().map(|member| member.name.clone()).collect())
    }
}
