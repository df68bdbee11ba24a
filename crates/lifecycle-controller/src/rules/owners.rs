//! How many pods owners want: each is read when it first counts, and watched by itself from then on, while it does.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::Shared;
use super::fresh::DEADLINE;
use crate::deletion::workloads::{Owner, desired, resource_of};
use crate::inbox::Inbox;

/// Each is a request that stays open. Past this many an owner is read each time that it counts.
const MOST: usize = 200;

pub(super) struct Owners {
    client: Client,
    /// By UID.
    watched: Arc<Mutex<HashMap<String, Watched>>>,
    /// Namespaces of which an owner wants another number of pods.
    changed: Arc<Inbox<String>>,
}

struct Watched {
    namespace: String,
    wanted: u32,
    _watch: AbortOnDropHandle<()>,
}

/// The API resource of an owner whose replicas are known; `None` for all others: nothing is ever missing of theirs.
fn resource(owner: &OwnerReference) -> Option<ApiResource> {
    let (group, version) = owner.api_version.split_once('/')?;
    let plural = match (group, owner.kind.as_str()) {
        ("apps.kusionstack.io", "CollaSet") => "collasets",
        ("apps.kruise.io", "CloneSet") => "clonesets",
        ("apps.kruise.io", "StatefulSet") => "statefulsets",
        _ => return resource_of(owner),
    };
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &owner.kind), plural))
}

impl Owners {
    /// Nothing is watched yet.
    pub(super) fn new(client: Client) -> Self {
        Owners { client, watched: Arc::default(), changed: Arc::default() }
    }

    /// How many pods `owner` wants; none when it is gone.
    pub(super) async fn wanted(&self, namespace: &str, owner: &OwnerReference) -> Result<u32, String> {
        let Some(resource) = resource(owner).or_else(|| resource_of(owner)) else { return Ok(0) };
        if let Some(watched) = self.watched.lock().get(&owner.uid) {
            return Ok(watched.wanted);
        }
        let api: Api<Owner> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = match tokio::time::timeout(DEADLINE, api.get_opt(&owner.name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(format!("could not read {} {}: {error}", owner.kind, owner.name)),
            Err(_) => {
                return Err(format!(
                    "could not read {} {}: no answer within {DEADLINE:?}",
                    owner.kind, owner.name
                ));
            }
        };
        let wanted = found.map_or(0, |found| desired(&found, owner, Timestamp::now()));
        let mut watched = self.watched.lock();
        if watched.len() < MOST && !watched.contains_key(&owner.uid) {
            let watch = self.watch(api, owner.clone());
            let entry = Watched {
                namespace: namespace.to_owned(),
                wanted,
                _watch: AbortOnDropHandle::new(tokio::spawn(watch)),
            };
            watched.insert(owner.uid.clone(), entry);
        }
        Ok(wanted)
    }

    /// Only these owners of `namespace` count any more.
    pub(super) fn keep(&self, namespace: &str, counts: impl Fn(&str) -> bool) {
        self.watched.lock().retain(|uid, watched| watched.namespace != namespace || counts(uid));
    }

    /// How many are watched.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.watched.lock().len()
    }

    fn watch(&self, api: Api<Owner>, owner: OwnerReference) -> impl Future<Output = ()> + Send + use<> {
        let (watched, changed) = (self.watched.clone(), self.changed.clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={}", owner.name));
        async move {
            let mut events = std::pin::pin!(watcher(api, config).default_backoff());
            let mut is_there = false;
            while let Some(event) = events.next().await {
                let wanted = match event {
                    Ok(watcher::Event::Apply(found) | watcher::Event::InitApply(found)) => {
                        is_there = true;
                        desired(&found, &owner, Timestamp::now())
                    }
                    Ok(watcher::Event::Init) => {
                        is_there = false;
                        continue;
                    }
                    Ok(watcher::Event::InitDone) if is_there => continue,
                    Ok(watcher::Event::Delete(_) | watcher::Event::InitDone) => 0,
                    Err(error) => {
                        tracing::debug!(%error, owner = owner.name, "the watch of an owner failed; it is taken up again");
                        continue;
                    }
                };
                if let Some(watched) = watched.lock().get_mut(&owner.uid)
                    && watched.wanted != wanted
                {
                    watched.wanted = wanted;
                    changed.push(watched.namespace.clone());
                }
            }
        }
    }
}

/// Decides anew when an owner wants another number of pods.
pub(super) async fn follow(shared: Arc<Shared>) {
    while let Some(namespace) = shared.owners.changed.next().await {
        shared.ring(&namespace);
    }
}
