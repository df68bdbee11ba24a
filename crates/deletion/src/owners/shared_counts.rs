//! Counts of owners for requests that arrive at the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use parking_lot::Mutex;
use podward_kube_util::{ApiError, CachedPod};

use super::count_time::CountTime;
use super::pod_counts::{self, OwnerCounts};

type OwnerCount = Arc<tokio::sync::Mutex<Option<(CountTime, OwnerCounts)>>>;

/// One entry per owner for which a request is being decided. Clones share the entries.
#[derive(Clone, Default)]
pub(crate) struct SharedCounts {
    owners: Arc<Mutex<HashMap<String, OwnerCount>>>,
}

impl SharedCounts {
    /// Decides with the counts of `owner`, the owner of `pod`. They are read after this call. Requests that wait for a
    /// count share the next one, and `decide` shows the others what it has decided by changing the counts.
    pub(crate) async fn decide<T>(
        &self,
        client: &Client,
        pod: &CachedPod,
        owner: &OwnerReference,
        decide: impl FnOnce(&mut OwnerCounts) -> T,
    ) -> Result<T, ApiError> {
        let asked = Instant::now();
        let entry = {
            let mut owners = self.owners.lock();
            // Of requests whose callers have gone.
            owners.retain(|_, entry| Arc::strong_count(entry) > 1);
            owners.entry(owner.uid.clone()).or_default().clone()
        };
        let decided = decide_with(&mut *entry.lock().await, client, pod, owner, asked, decide).await;
        let mut owners = self.owners.lock();
        // The map and this function: no other request waits.
        if Arc::strong_count(&entry) <= 2 {
            owners.remove(&owner.uid);
        }
        decided
    }
}

async fn decide_with<T>(
    count: &mut Option<(CountTime, OwnerCounts)>,
    client: &Client,
    pod: &CachedPod,
    owner: &OwnerReference,
    asked: Instant,
    decide: impl FnOnce(&mut OwnerCounts) -> T,
) -> Result<T, ApiError> {
    let (time, mut counts) = match count.take().filter(|(time, _)| time.answers(asked)) {
        Some(shared) => shared,
        None => {
            let began = Instant::now();
            let counts = pod_counts::read(client, pod, owner).await?;
            (CountTime::since(began), counts)
        }
    };
    let decided = decide(&mut counts);
    *count = Some((time, counts));
    Ok(decided)
}
