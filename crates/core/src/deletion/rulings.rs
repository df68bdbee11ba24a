//! The decisions of the leader about the pods of a workload that the API server may not show yet.

use std::collections::{BTreeMap, BTreeSet};

use super::workload::{DeletionProgress, Ruling, Workload, WorkloadPod};

/// The decisions about one workload. A new leader starts without them: the labels of the pods show the same a little
/// later, and the order in which [`Workload::rule`] handles requests is the same for all leaders.
#[derive(Clone, Debug, Default)]
pub struct WorkloadRulings {
    passed: BTreeSet<String>,
    leaving: BTreeSet<String>,
}

impl WorkloadRulings {
    /// Decides which requested pods may leave service or stay out of it. `members` are the present pods of the
    /// workload.
    pub fn rule(&mut self, workload: &Workload, members: &[WorkloadPod]) -> BTreeMap<String, Ruling> {
        let mut members = members.to_vec();
        for member in &mut members {
            if let Some(request) = &mut member.request {
                if self.leaving.contains(&member.uid) {
                    request.progress = DeletionProgress::Leaving;
                } else if request.progress == DeletionProgress::Requested && self.passed.contains(&member.uid)
                {
                    request.progress = DeletionProgress::Passed;
                }
            }
        }
        let rulings = owned(workload.rule(&members));
        self.passed = going(&rulings);
        rulings
    }

    /// Decides at the last moment which pods are deleted. By then replicas may have been added, pods may have gone, and
    /// another leader may have decided. Requests that are not granted yet do not count.
    pub fn final_ruling(&mut self, workload: &Workload, members: &[WorkloadPod]) -> BTreeMap<String, Ruling> {
        let mut members = members.to_vec();
        for member in &mut members {
            let is_leaving = self.leaving.contains(&member.uid);
            member.request =
                member.request.filter(|request| request.progress <= DeletionProgress::Granted || is_leaving);
            if let Some(request) = member.request.as_mut().filter(|_| is_leaving) {
                request.progress = DeletionProgress::Leaving;
            }
        }
        let rulings = owned(workload.rule(&members));
        self.leaving = going(&rulings);
        rulings
    }
}

fn owned(rulings: BTreeMap<&str, Ruling>) -> BTreeMap<String, Ruling> {
    rulings.into_iter().map(|(uid, ruling)| (uid.to_owned(), ruling)).collect()
}

fn going(rulings: &BTreeMap<String, Ruling>) -> BTreeSet<String> {
    rulings.iter().filter(|(_, ruling)| **ruling == Ruling::Go).map(|(uid, _)| uid.clone()).collect()
}
