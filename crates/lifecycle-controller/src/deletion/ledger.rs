//! What the leader has counted, owner by owner.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use parking_lot::Mutex;
use podward_core::deletion::{Account, Ruling};

use super::watches::Waiting;
use super::workloads;
use crate::cached_pod::CachedPod;
use crate::error::Error;

/// For how long a count serves the other pods of the same owner. A scale-in of many pods comes as one burst, and would be a list of
/// all of them for each otherwise. What it says of all of them together holds.
const SERVES: Duration = Duration::from_secs(1);

/// One page an owner. Its lock is held from the count to the decision, so that two pods can't both be the last one too many.
#[derive(Default)]
pub(super) struct Ledger {
    pages: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Page>>>>,
}

#[derive(Default)]
struct Page {
    account: Account,
    count: Option<Count>,
    last_word: Option<Count>,
}

struct Count {
    at: Instant,
    /// What [`Waiting::version`] gave; while it is the same the owner wants what it wanted.
    version: Option<u64>,
    rulings: BTreeMap<String, Ruling>,
}

impl Ledger {
    /// Whether `pod` may leave service, or, when it has `passed`, may stay out of it. When its owner changes, `waiting` brings the pod
    /// up again.
    pub(super) async fn rule(
        &self,
        client: &Client,
        waiting: &Waiting,
        pod: &CachedPod,
        owner: &OwnerReference,
        passed: bool,
    ) -> Result<Ruling, Error> {
        let page = self.page(&owner.uid);
        let mut page = page.lock().await;
        let at = Instant::now();
        let version = waiting.version(&owner.uid);
        let serves = |count: &&Count| {
            let is_watched = passed && version.is_some();
            count.version == version && (is_watched || at.duration_since(count.at) < SERVES)
        };
        let known = page.count.as_ref().filter(serves).and_then(|count| count.rulings.get(pod.uid()));
        if let Some(ruling) = known.cloned() {
            // Each pod that waits is to be brought up, not only the one that began the watch.
            if let Some(count) = page.count.as_ref().filter(|_| ruling == Ruling::Go) {
                waiting.also_for_owner(&pod.key(), &owner.uid, count.version);
            }
            return Ok(ruling);
        }
        let numbers = workloads::read(client, pod, owner).await?;
        let rulings = page.account.rule(&numbers.workload, &numbers.members);
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        let begun = waiting.for_owner(&pod.key(), owner, &numbers.workload);
        page.count = Some(Count { at, version: begun.or(version), rulings });
        Ok(ruling)
    }

    /// Whether `pod`, which may be deleted, is deleted: asked at the last moment before.
    pub(super) async fn last_word(
        &self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
    ) -> Result<Ruling, Error> {
        let page = self.page(&owner.uid);
        let mut page = page.lock().await;
        let at = Instant::now();
        let known = page.last_word.as_ref().filter(|count| at.duration_since(count.at) < SERVES);
        if let Some(ruling) = known.and_then(|count| count.rulings.get(pod.uid())) {
            return Ok(ruling.clone());
        }
        let numbers = workloads::read(client, pod, owner).await?;
        let rulings = page.account.last_word(&numbers.workload, &numbers.members);
        let ruling = rulings.get(pod.uid()).cloned().unwrap_or(Ruling::Go);
        page.last_word = Some(Count { at, version: None, rulings });
        Ok(ruling)
    }

    /// Something else happens to the owner's pods than what was counted with: count again before the next delete.
    pub(super) async fn recount(&self, owner: &OwnerReference) {
        self.page(&owner.uid).lock().await.last_word = None;
    }

    /// Forgets owners that have no pods any more.
    pub(super) fn retain(&self, has_pods: impl Fn(&str) -> bool) {
        self.pages.lock().retain(|uid, _| has_pods(uid));
    }

    fn page(&self, uid: &str) -> Arc<tokio::sync::Mutex<Page>> {
        self.pages.lock().entry(uid.to_owned()).or_default().clone()
    }
}
