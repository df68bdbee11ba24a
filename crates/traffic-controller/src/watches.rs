//! The watches that keep the index up to date.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use kube::runtime::watcher as watch_stream;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use podward_core::UnixNanos;
use podward_runtime::admin::ReadinessCondition;
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio_util::sync::CancellationToken;

use crate::clock::between;
use crate::index::{
    ApiServerLease, ChangeOrigin, EndpointIndex, NamespaceObject, NodeObject, ObjectKey, RouteKind,
    RouteObject, ServiceObject, SliceObject, WatchedObject,
};
use crate::metrics::TrafficMetrics;
use crate::shared_index::SharedIndex;

/// The time after which a kind that the cluster does not have is looked for again.
const MISSING_KIND_INTERVAL: Duration = Duration::from_secs(30);
/// A watch that lasted this long may be restarted at once: the lists are not frequent.
const STABLE: Duration = Duration::from_secs(10);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A kind of object that the index contains.
pub(crate) trait IndexedObject: WatchedObject {
    /// Returns what to watch. By default, all objects in the cluster.
    fn selection(client: Client) -> (Api<Self>, watcher::Config) {
        (Api::all(client), watcher::Config::default())
    }
    /// Adds or replaces the object. `watched` is true for a watch event and false for a list. Returns true if the index
    /// changes.
    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, watched: bool, now: UnixNanos) -> bool;
    /// Removes the object.
    fn remove(key: &ObjectKey, index: &mut EndpointIndex, now: UnixNanos);
    /// Removes all objects that are not in `listed`, the keys of a complete list.
    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, now: UnixNanos);
    /// Records that the watch is interrupted: the objects in the index may be out of date until they are listed again.
    fn interrupt(index: &mut EndpointIndex, _now: UnixNanos) {
        index.set_interrupted(Self::KIND, true);
    }
}

impl IndexedObject for SliceObject {
    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, watched: bool, now: UnixNanos) -> bool {
        let origin = if watched { ChangeOrigin::Watched } else { self.listed_origin() };
        self.slice().is_some_and(|slice| index.put_slice(key, slice, origin, now))
    }

    fn remove(key: &ObjectKey, index: &mut EndpointIndex, now: UnixNanos) {
        index.remove_slice(key, ChangeOrigin::Watched, now);
    }

    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, now: UnixNanos) {
        index.retain_slices(listed, now);
        index.set_slices_listed(now);
    }
}

impl IndexedObject for ServiceObject {
    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, watched: bool, now: UnixNanos) -> bool {
        let origin = if watched { ChangeOrigin::Watched } else { ChangeOrigin::Listed(None) };
        index.put_service(&key, self.service(), origin, now);
        true
    }

    fn remove(key: &ObjectKey, index: &mut EndpointIndex, now: UnixNanos) {
        index.remove_service(key, ChangeOrigin::Watched, now);
    }

    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, now: UnixNanos) {
        index.retain_services(listed, now);
    }
}

impl IndexedObject for NodeObject {
    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, _: bool, _: UnixNanos) -> bool {
        index.put_node(&key.name, self.node())
    }

    fn remove(key: &ObjectKey, index: &mut EndpointIndex, now: UnixNanos) {
        index.remove_node(&key.name, now);
    }

    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, now: UnixNanos) {
        index.retain_nodes(listed, now);
    }
}

impl<K: RouteKind> IndexedObject for RouteObject<K> {
    fn selection(client: Client) -> (Api<Self>, watcher::Config) {
        (Api::all(client), watcher::Config::default().page_size(K::PAGE_SIZE))
    }

    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, _: bool, now: UnixNanos) -> bool {
        index.put_route::<K>(&key, self.services(), now)
    }

    fn remove(key: &ObjectKey, index: &mut EndpointIndex, now: UnixNanos) {
        index.remove_route::<K>(key, now);
    }

    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, now: UnixNanos) {
        index.retain_routes::<K>(listed, now);
    }

    fn interrupt(index: &mut EndpointIndex, _: UnixNanos) {
        index.forget_routes::<K>();
    }
}

impl IndexedObject for NamespaceObject {
    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, _: bool, _: UnixNanos) -> bool {
        index.put_namespace(&key.name, self.mesh())
    }

    fn remove(key: &ObjectKey, index: &mut EndpointIndex, _: UnixNanos) {
        index.remove_namespace(&key.name);
    }

    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, _: UnixNanos) {
        index.retain_namespaces(listed);
    }

    fn interrupt(index: &mut EndpointIndex, _: UnixNanos) {
        index.forget_namespaces();
    }
}

impl IndexedObject for ApiServerLease {
    fn selection(client: Client) -> (Api<Self>, watcher::Config) {
        (Api::namespaced(client, Self::NAMESPACE), watcher::Config::default().labels(Self::SELECTOR))
    }

    fn put(&self, key: ObjectKey, index: &mut EndpointIndex, _: bool, _: UnixNanos) -> bool {
        index.put_api_server(key.name)
    }

    fn remove(key: &ObjectKey, index: &mut EndpointIndex, now: UnixNanos) {
        index.remove_api_server(&key.name, now);
    }

    fn retain_listed(listed: &HashSet<ObjectKey>, index: &mut EndpointIndex, now: UnixNanos) {
        index.set_api_servers(listed, now);
    }

    fn interrupt(index: &mut EndpointIndex, now: UnixNanos) {
        index.forget_api_servers(now);
    }
}

/// Watches the [selected](IndexedObject::selection) objects of kind `K` and updates the index until `stop`. Sets
/// `listed` when the first list is complete. From then on the index may be out of date, but it is never incomplete.
///
/// A watch that fails is restarted with a list. Only a list shows that the index is up to date again: a watch that
/// continues where it was interrupted sends nothing until an object changes. Until the list is complete, the index
/// says that the watch is interrupted. A watch that the API server ends, as it does after some minutes, does not fail:
/// the stream continues it at once.
///
/// A cluster without an optional kind has no objects of it. The kind is looked for again from time to time.
pub(crate) async fn watch_kind<K: IndexedObject>(
    client: Client,
    shared: Arc<SharedIndex>,
    metrics: Arc<TrafficMetrics>,
    listed: ReadinessCondition,
    stop: CancellationToken,
) {
    metrics.set_watch_up(K::KIND, false);
    let mut failures = 0;
    let work = async {
        loop {
            let (objects, selection) = K::selection(client.clone());
            let events = watch_stream(objects, selection);
            let began = shared.clock.now();
            let error = follow(events, &shared, &metrics, &listed, &mut failures).await;
            if lacks_kind::<K>(error.as_ref()) {
                K::retain_listed(&HashSet::new(), &mut shared.index.lock(), shared.clock.now());
                shared.notify_changed();
                listed.set(true);
                metrics.set_watch_up(K::KIND, true);
                failures = 0;
                tokio::time::sleep(MISSING_KIND_INTERVAL).await;
                continue;
            }
            failures += 1;
            let delay = restart_delay(error.as_ref(), failures, between(began, shared.clock.now()));
            let error = error.map_or_else(|| "the stream ended".to_owned(), |error| error.to_string());
            metrics.set_watch_up(K::KIND, false);
            tracing::warn!(kind = K::KIND, %error, "the watch failed; restarting it with back-off");
            tokio::time::sleep(delay).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Returns true if a list failed because the cluster does not have the kind `K`, which is normal.
fn lacks_kind<K: WatchedObject>(error: Option<&watcher::Error>) -> bool {
    K::OPTIONAL && is_missing_kind(error)
}

/// Returns true if a list failed because the API server does not have the kind.
fn is_missing_kind(error: Option<&watcher::Error>) -> bool {
    matches!(error, Some(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404)
}

/// Returns the time until a watch is restarted that has failed `failures` times in a row, the last time after
/// `lasted`. It is zero if the API server works, and has only forgotten the changes since the last event.
fn restart_delay(error: Option<&watcher::Error>, failures: u32, lasted: Duration) -> Duration {
    let code = match error {
        Some(watcher::Error::WatchError(status)) => Some(status.code),
        Some(watcher::Error::WatchStartFailed(kube::Error::Api(status))) => Some(status.code),
        _ => None,
    };
    match (code, failures) {
        (Some(410), 1) if lasted >= STABLE => Duration::ZERO,
        _ => delay_after(API_SERVER, failures),
    }
}

/// Applies the events of a watch until it fails. Returns the error, or `None` if the stream ended.
async fn follow<K: IndexedObject>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    shared: &SharedIndex,
    metrics: &TrafficMetrics,
    listed: &ReadinessCondition,
    failures: &mut u32,
) -> Option<watcher::Error> {
    let mut events = pin!(events);
    let mut keys: Option<HashSet<ObjectKey>> = None;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            ended => {
                let error = ended.err();
                if !lacks_kind::<K>(error.as_ref()) {
                    K::interrupt(&mut shared.index.lock(), shared.clock.now());
                }
                return error;
            }
        };
        let now = shared.clock.now();
        let changed = {
            let mut index = shared.index.lock();
            let changed = apply::<K>(event, &mut keys, &mut index, listed, now);
            if keys.is_none() {
                index.set_interrupted(K::KIND, false);
            }
            changed
        };
        // An incomplete list does not show yet whether it succeeds.
        if keys.is_none() {
            metrics.set_watch_up(K::KIND, true);
            *failures = 0;
        }
        if changed {
            shared.notify_changed();
        }
    }
}

/// Applies an event. `keys` are the keys of the current list while it is incomplete. Returns true if the index may have
/// changed.
fn apply<K: IndexedObject>(
    event: Event<K>,
    keys: &mut Option<HashSet<ObjectKey>>,
    index: &mut EndpointIndex,
    listed: &ReadinessCondition,
    now: UnixNanos,
) -> bool {
    match event {
        Event::Init => {
            *keys = Some(HashSet::new());
            false
        }
        Event::InitApply(object) => {
            let key = ObjectKey::of(object.meta());
            if let Some(keys) = keys {
                keys.insert(key.clone());
            }
            object.put(key, index, false, now)
        }
        Event::InitDone => {
            K::retain_listed(&keys.take().unwrap_or_default(), index, now);
            if listed.set(true) {
                tracing::info!(kind = K::KIND, "the first list is complete");
            }
            true
        }
        Event::Apply(object) => object.put(ObjectKey::of(object.meta()), index, true, now),
        Event::Delete(object) => {
            K::remove(&ObjectKey::of(object.meta()), index, now);
            true
        }
    }
}

/// Removes what is older than `retention` from the index periodically and updates the metrics of its size, until `stop`.
pub(crate) async fn sweep(
    shared: Arc<SharedIndex>,
    retention: Duration,
    metrics: Arc<TrafficMetrics>,
    stop: CancellationToken,
) {
    while stop.run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL)).await.is_some() {
        let sizes = {
            let mut index = shared.index.lock();
            index.sweep(shared.clock.now(), retention);
            index.sizes()
        };
        metrics.set_sizes(sizes);
    }
}

#[cfg(test)]
mod tests;
