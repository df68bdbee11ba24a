//! How many pods owners want, and how to find them. An owner counts while an operation waits that its missing pods
//! matter for. It is read when it first counts, and watched while it does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_kube_util::WorkQueue;
use podward_kube_util::owners::{Owner, desired, resource_named, resource_of, selector};
use podward_kube_util::watched::{Watch, WatchMetrics, Watched};
use podward_runtime::admin::ReadinessCondition;
use podward_runtime::retry::{API_SERVER, ApiCallError, api_call, delay_after};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Each watch is an open request. Owners beyond this number are read for each decision.
const MAX_WATCHES: usize = 200;

/// How many pods owners want, and how to find them.
pub(crate) struct OwnerReplicas {
    client: Client,
    /// By UID.
    watched: Arc<Mutex<HashMap<String, WatchedOwner>>>,
    /// The owners that could not be read, by UID.
    unread: Mutex<HashMap<String, UnreadOwner>>,
    /// The namespaces with an owner that wants another number of pods.
    changed: Arc<WorkQueue<String>>,
}

/// The pods that an owner wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedReplicas {
    pub(super) count: u32,
    /// The owner's label selector, as the text of a list parameter. `None` if the owner is gone or has no valid one.
    pub(super) selector: Option<String>,
}

impl WantedReplicas {
    fn of(found: &Owner, owner: &OwnerReference) -> Self {
        WantedReplicas { count: desired(found, owner, Timestamp::now()), selector: selector(found) }
    }
}

struct WatchedOwner {
    namespace: String,
    wanted: WantedReplicas,
    /// Ends the watch.
    _stop: DropGuard,
}

/// An owner that could not be read.
#[derive(Clone, Debug)]
pub(crate) struct UnreadOwner {
    namespace: String,
    pub(super) error: String,
    /// In a row.
    failures: u32,
    /// It is not read again before this time.
    pub(super) retry_at: Instant,
}

/// Returns the API resource of an owner with a known number of replicas; `None` for all others, whose pods are never
/// missing.
fn resource(owner: &OwnerReference) -> Option<ApiResource> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, owner.kind.as_str()) {
        ("apps.kusionstack.io", "CollaSet") => resource_named(owner, "collasets"),
        ("apps.kruise.io", "CloneSet") => resource_named(owner, "clonesets"),
        ("apps.kruise.io", "StatefulSet") => resource_named(owner, "statefulsets"),
        _ => resource_of(owner),
    }
}

/// Returns true if the number of pods that `owner` wants can be known.
pub(super) fn has_replicas(owner: &OwnerReference) -> bool {
    resource(owner).is_some()
}

impl OwnerReplicas {
    /// Returns a value that watches nothing yet.
    pub(crate) fn new(client: Client) -> Self {
        OwnerReplicas { client, watched: Arc::default(), unread: Mutex::default(), changed: Arc::default() }
    }

    /// Returns the pods that `owner` wants; none if it is gone.
    ///
    /// # Errors
    /// When the owner can't be read. It is not read again before [`UnreadOwner::retry_at`].
    pub(crate) async fn wanted(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<WantedReplicas, UnreadOwner> {
        let Some(resource) = resource(owner) else { return Ok(WantedReplicas::default()) };
        if let Some(watched) = self.watched.lock().get(&owner.uid) {
            return Ok(watched.wanted.clone());
        }
        if let Some(unread) =
            self.unread.lock().get(&owner.uid).filter(|unread| unread.retry_at > Instant::now())
        {
            return Err(unread.clone());
        }
        let api: Api<Owner> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = api_call(api.get_opt(&owner.name)).await;
        let found = found.map_err(|error| self.failed(namespace, owner, &error))?;
        self.unread.lock().remove(&owner.uid);
        let wanted = found.map_or_else(WantedReplicas::default, |found| WantedReplicas::of(&found, owner));
        let mut watched = self.watched.lock();
        if watched.len() < MAX_WATCHES && !watched.contains_key(&owner.uid) {
            let (_stop, namespace) = (self.watch(api, owner.clone()), namespace.to_owned());
            watched.insert(owner.uid.clone(), WatchedOwner { namespace, wanted: wanted.clone(), _stop });
        }
        Ok(wanted)
    }

    /// Notes that `owner` could not be read.
    fn failed(&self, namespace: &str, owner: &OwnerReference, error: &ApiCallError) -> UnreadOwner {
        let error = format!("could not read {} {}: {error}", owner.kind, owner.name);
        tracing::warn!(
            namespace,
            error,
            "could not read the owner of pods for rules; the pods that need these budgets wait, and it is retried"
        );
        let mut unread = self.unread.lock();
        let failures = unread.get(&owner.uid).map_or(0, |before| before.failures).saturating_add(1);
        let retry_at = Instant::now() + delay_after(API_SERVER, failures);
        let failed = UnreadOwner { namespace: namespace.to_owned(), error, failures, retry_at };
        unread.insert(owner.uid.clone(), failed.clone());
        failed
    }

    /// Waits for an owner to want another number of pods. Returns its namespace; never `None`, because the queue is not
    /// closed.
    pub(super) async fn next_changed(&self) -> Option<String> {
        self.changed.next().await
    }

    /// Drops the state of the owners of `namespace` for whose UID `counts` returns false, and ends their watches.
    pub(super) fn retain(&self, namespace: &str, counts: impl Fn(&str) -> bool) {
        self.watched.lock().retain(|uid, watched| watched.namespace != namespace || counts(uid));
        self.unread.lock().retain(|uid, unread| unread.namespace != namespace || counts(uid));
    }

    /// Returns the UIDs of the watched owners, sorted.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> Vec<String> {
        let mut watched: Vec<String> = self.watched.lock().keys().cloned().collect();
        watched.sort();
        watched
    }

    /// Watches `owner` until the returned guard is dropped.
    fn watch(&self, api: Api<Owner>, owner: OwnerReference) -> DropGuard {
        // The watch does not keep the map, whose guard ends it.
        let (watched, changed) = (Arc::downgrade(&self.watched), self.changed.clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={}", owner.name));
        let stop = CancellationToken::new();
        // Already true: the first list of one owner is not worth a message in the log.
        let listed = ReadinessCondition::default();
        listed.set(true);
        let watch = Watch {
            name: "owners",
            listed,
            // One series for each owner would be too many.
            metrics: WatchMetrics::default(),
            may_be_absent: false,
            stop: stop.clone(),
        };
        let OwnerReference { name, uid, .. } = owner.clone();
        let read = move |found: Owner| Some(WantedReplicas::of(&found, &owner));
        let set_wanted = move |objects: &HashMap<String, WantedReplicas>| {
            let wanted = objects.get(&name).cloned().unwrap_or_default();
            let Some(watched) = watched.upgrade() else { return };
            if let Some(watched) = watched.lock().get_mut(&uid)
                && watched.wanted != wanted
            {
                watched.wanted = wanted;
                changed.push(watched.namespace.clone());
            }
        };
        Watched::keep(watch, move || watcher(api.clone(), config.clone()), read, set_wanted);
        stop.drop_guard()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use hyper::Request;
    use kube::client::Body;
    use podward_support::api_answers::{Answer, json_answer};
    use podward_support::eventually;
    use serde_json::json;

    use super::*;

    /// An API server with a ReplicaSet. A watch of it, which never delivers anything, has a clone of `open` until it is closed.
    fn client(open: Arc<()>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let (is_one, open) =
                (request.uri().path().ends_with("/web"), is_watch.then(|| Arc::clone(&open)));
            async move {
                if open.is_some() {
                    std::future::pending::<()>().await;
                }
                drop(open);
                let set = json!({
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"replicas": 3},
                    "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
                });
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": [set]});
                Ok::<Answer, Infallible>(json_answer(if is_one { &set } else { &list }))
            }
        });
        Client::new(service, "shop")
    }

    #[tokio::test]
    async fn the_watches_end_with_their_owner() {
        let open = Arc::new(());
        let replicas = OwnerReplicas::new(client(Arc::clone(&open)));
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"});
        let owner = serde_json::from_value(owner).unwrap();
        assert_eq!(replicas.wanted("shop", &owner).await.unwrap().count, 3);
        // The client has one.
        let until = async |count: usize| {
            let (what, is_met) = (|| format!("{count} clones"), || Arc::strong_count(&open) == count);
            eventually(Duration::from_secs(20), what, is_met).await.unwrap();
        };
        until(3).await;
        drop(replicas);
        until(1).await;
    }
}
