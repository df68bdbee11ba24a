//! Pods that are deleted at the same time.

use super::workload::{DeletionProgress, Workload, WorkloadPod};

/// When a pod is deleted whose workload ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JointDeletion {
    /// Now, together with the pods with these names.
    Now(Vec<String>),
    /// When the pods with these names are gone, or may be deleted together with it.
    After(Vec<String>),
}

impl Workload {
    /// Returns whether pods wait for others if a request means that the workload ends.
    ///
    /// A Job that restarts containers in their pods fails when they have been restarted too often. Its controller counts
    /// the restarts of the pods that exist, and it reports the failure only if it can delete all of them at once
    /// (`syncJob` and `pastBackoffLimitOnFailure` in kubernetes/pkg/controller/job). If too many restarts were gone
    /// before, the Job would start again.
    #[must_use]
    pub fn ends_together(&self) -> bool {
        matches!(self, Workload::Job { restart_limit: Some(_), .. })
    }

    /// Returns when `uid`, which may be deleted, is deleted. The pods with the most restarts go last: as few as are
    /// enough for the Job to fail, at the same time. One of them may be deleted before its drain has ended if its node
    /// is lost, so it never waits for itself.
    #[must_use]
    pub fn joint_deletion(&self, members: &[WorkloadPod], uid: &str) -> JointDeletion {
        let ends = |member: &&WorkloadPod| member.request.is_some_and(|request| request.ends_workload);
        let Workload::Job { restart_limit: Some(limit), .. } = self else {
            return JointDeletion::Now(Vec::new());
        };
        let mut ending: Vec<&WorkloadPod> = members.iter().filter(ends).collect();
        let wait_has_ended =
            |member: &WorkloadPod| member.request.is_some_and(|request| request.wait_has_ended);
        ending.sort_by_key(|member| (!wait_has_ended(member), member.restarts, &member.uid));
        let (mut first_of_last, mut restarts) = (ending.len(), 0_u32);
        while first_of_last > 0 && restarts < *limit {
            first_of_last -= 1;
            restarts = restarts.saturating_add(ending[first_of_last].restarts);
        }
        let (others, last) = ending.split_at(first_of_last);
        if !last.iter().any(|member| member.uid == uid) {
            return JointDeletion::Now(Vec::new());
        }
        let may_go = |member: &WorkloadPod| {
            member.request.is_some_and(|request| request.progress <= DeletionProgress::Granted)
        };
        let last = last.iter().filter(|member| member.uid != uid);
        let waits_for = others.iter().chain(last.clone().filter(|member| !may_go(member)));
        let waits_for: Vec<String> = waits_for.map(|member| member.name.clone()).collect();
        if !waits_for.is_empty() {
            return JointDeletion::After(waits_for);
        }
        JointDeletion::Now(last.map(|member| member.name.clone()).collect())
    }
}
