//! What the leader has decided about the pods of one workload, and the API server may not show yet.

use std::collections::{BTreeMap, BTreeSet};

use super::workload::{Member, Progress, Ruling, Workload};

/// The account of one workload. It may be lost (a new leader begins with an empty one): the labels of the pods say the same, a
/// little later; and the order in which [`Workload::rule`] takes wishes is the same for all leaders.
#[derive(Clone, Debug, Default)]
pub struct Account {
    passed: BTreeSet<String>,
    leaving: BTreeSet<String>,
}

impl Account {
    /// Rules which wished pods may leave service, or may stay out of it. `members` is what the API server has now.
    pub fn rule(&mut self, workload: &Workload, members: &[Member]) -> BTreeMap<String, Ruling> {
        let mut members = members.to_vec();
        for member in &mut members {
            if let Some(wish) = &mut member.wish {
                if self.leaving.contains(&member.uid) {
                    wish.progress = Progress::Leaving;
                } else if wish.progress == Progress::Asked && self.passed.contains(&member.uid) {
                    wish.progress = Progress::Passed;
                }
            }
        }
        let rulings = owned(workload.rule(&members));
        self.passed = going(&rulings);
        rulings
    }

    /// Rules which pods that may be deleted are deleted, at the last moment before: by then replicas may have been added, other pods may
    /// have gone, and another leader may have decided too. Wishes that are not so far don't count here.
    pub fn last_word(&mut self, workload: &Workload, members: &[Member]) -> BTreeMap<String, Ruling> {
        let mut members = members.to_vec();
        for member in &mut members {
            let is_leaving = self.leaving.contains(&member.uid);
            member.wish = member.wish.filter(|wish| wish.progress <= Progress::Granted || is_leaving);
            if let Some(wish) = member.wish.as_mut().filter(|_| is_leaving) {
                wish.progress = Progress::Leaving;
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
