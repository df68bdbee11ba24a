//! What the leader has counted, owner by owner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use parking_lot::Mutex;
use podward_core::deletion::{Progress, Ruling, Workload};

use super::watches::Waiting;
use super::workloads;
use crate::cached_pod::CachedPod;
use crate::error::Error;

/// For how long a count serves the other pods of the same owner. A scale-in of many pods comes as one burst, and would be a list of
/// all of them for each otherwise.
const SERVES: Duration = Duration::from_secs(1);

/// One account an owner. Its lock is held from the count to the decision, so that two pods can't both be the last one too many.
#[derive(Default)]
pub(super) struct Ledger {
    accounts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Account>>>>,
}

#[derive(Default)]
struct Account {
    count: Option<Count>,
    /// Pods that were let pass, by UID. Their labels say so too, but only once they are written.
    passed: HashSet<String>,
    /// How many deletes may follow the last count that was made for a delete.
    spare: Option<(Instant, usize)>,
}

struct Count {
    at: Instant,
    /// What [`Waiting::version`] gave; while it is the same the owner wants what it wanted.
    version: Option<u64>,
    rulings: HashMap<String, Ruling>,
}

impl Ledger {
    /// Whether `pod` may leave service, or, when it has `passed`, may stay out of it. `waiting` calls it again when its owner changes.
    pub(super) async fn rule(
        &self,
        client: &Client,
        waiting: &Waiting,
        pod: &CachedPod,
        owner: &OwnerReference,
        passed: bool,
    ) -> Result<Ruling, Error> {
        let account = self.account(&owner.uid);
        let mut account = account.lock().await;
        let now = Instant::now();
        let version = waiting.version(&owner.uid);
        let serves = |count: &Count| {
            let is_unchanged = passed && version.is_some() && count.version == version;
            is_unchanged || now.duration_since(count.at) < SERVES && count.version == version
        };
        let known = account.count.as_ref().filter(|count| serves(count));
        if let Some(ruling) = known.and_then(|count| count.rulings.get(pod.uid())).cloned() {
            return Ok(ruling);
        }
        let mut numbers = workloads::read(client, pod, owner).await?;
        for member in &mut numbers.members {
            if let Some(wish) = member.wish.as_mut().filter(|wish| wish.progress == Progress::Asked)
                && account.passed.contains(&member.uid)
            {
                wish.progress = Progress::Passed;
            }
        }
        let rulings: HashMap<String, Ruling> = numbers
            .workload
            .rule(&numbers.members)
            .into_iter()
            .map(|(uid, ruling)| (uid.to_owned(), ruling))
            .collect();
        account.passed =
            rulings.iter().filter(|(_, ruling)| **ruling == Ruling::Go).map(|(uid, _)| uid.clone()).collect();
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        let begun = waiting.for_owner(&pod.key(), owner, &numbers.workload);
        account.count = Some(Count { at: now, version: begun.or(version), rulings });
        Ok(ruling)
    }

    /// Takes one delete of a pod of `owner`, at the last moment before it: whether the workload has too many pods still.
    pub(super) async fn spend(
        &self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Ruling, Error> {
        let account = self.account(&owner.uid);
        let mut account = account.lock().await;
        if let Some((at, spare)) = account.spare
            && at.elapsed() < SERVES
            && spare > 0
        {
            account.spare = Some((at, spare - 1));
            return Ok(Ruling::Go);
        }
        let at = Instant::now();
        let numbers = workloads::read(client, pod, owner).await?;
        let active = numbers.members.len();
        match numbers.workload.spare(active) {
            Some(0) => Ok(Ruling::Keep(format!("its workload has {active} active pods and wants them all"))),
            Some(spare) => {
                account.spare = Some((at, spare - 1));
                Ok(Ruling::Go)
            }
            None if matches!(numbers.workload, Workload::StatefulSet { .. }) => {
                let mut rulings = numbers.workload.rule(&numbers.members);
                Ok(rulings.remove(pod.uid()).unwrap_or(Ruling::Go))
            }
            None => Ok(Ruling::Go),
        }
    }

    /// A delete that was taken into account has not happened: count again before the next.
    pub(super) async fn unspend(&self, owner: &OwnerReference) {
        self.account(&owner.uid).lock().await.spare = None;
    }

    /// Forgets owners that are not `of` any pod.
    pub(super) fn retain(&self, of: impl Fn(&str) -> bool) {
        self.accounts.lock().retain(|uid, _| of(uid));
    }

    fn account(&self, uid: &str) -> Arc<tokio::sync::Mutex<Account>> {
        self.accounts.lock().entry(uid.to_owned()).or_default().clone()
    }
}
