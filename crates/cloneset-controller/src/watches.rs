//! Watches of sets and of the objects that they own.

use std::pin::pin;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Error, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use podward_api::CloneSet;
use podward_kube_util::watched::WatchMetrics;
use podward_runtime::admin::ReadinessCondition;
use tokio_util::sync::CancellationToken;

use crate::cache::{Listed, OwnedCache};
use crate::owned::{SetReference, is_orphan, set_of};
use crate::slim::Slim;

/// A watch of one kind of objects.
#[derive(Clone)]
pub(crate) struct OwnedWatch {
    pub(crate) client: Client,
    /// Set to true after the first list.
    pub(crate) listed: ReadinessCondition,
    /// Receives the sets whose objects have changed.
    pub(crate) changed: UnboundedSender<ObjectRef<CloneSet>>,
    pub(crate) sets: Store<CloneSet>,
    pub(crate) metrics: WatchMetrics,
    pub(crate) stop: CancellationToken,
}

/// Keeps `cache` up to date with the objects that match the label selector, until the watch is stopped.
pub(crate) async fn follow<K: Slim>(
    name: &'static str,
    labels: &str,
    cache: Arc<OwnedCache<K>>,
    watch: OwnedWatch,
) {
    let OwnedWatch { client, listed, changed, sets, metrics, stop } = watch;
    let config = watcher::Config::default().labels(labels);
    let events = metrics.observe(name, false, watcher(Api::<K>::all(client), config).default_backoff());
    let mut events = pin!(events.take_until(stop.cancelled_owned()));
    // A failure of the channel means that the controller has ended.
    let notify = |affected: Vec<ObjectRef<CloneSet>>| {
        affected.into_iter().for_each(|set| drop(changed.unbounded_send(set)));
    };
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => cache.begin_list(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let mut affected = affected(&object, &sets);
                // The set that has lost it, and may need another one.
                affected.extend(cache.stored_set(&object).map(|set| set.object()));
                affected.dedup();
                cache.deliver(object);
                notify(affected);
            }
            Ok(Event::InitDone) => {
                let Listed { objects, lost_by } = cache.end_list();
                metrics.follows(name, objects);
                // Nothing else says that their objects were deleted while the watch was interrupted.
                notify(lost_by.iter().map(SetReference::object).collect());
                if listed.set(true) {
                    tracing::info!(watch = name, "listed");
                }
            }
            Ok(Event::Delete(object)) => {
                cache.delete(&object);
                notify(affected(&object, &sets));
            }
            Err(error) => {
                tracing::warn!(watch = name, %error, "the watch failed; it is started again with back-off");
            }
        }
    }
}

/// Returns the sets that an object concerns: the one that controls it, or, if nothing controls it, those of its namespace.
fn affected(object: &impl ResourceExt, sets: &Store<CloneSet>) -> Vec<ObjectRef<CloneSet>> {
    if let Some(set) = set_of(object) {
        return vec![set.object()];
    }
    if !is_orphan(object) {
        return Vec::new();
    }
    let is_near = |set: &&Arc<CloneSet>| set.metadata.namespace == object.meta().namespace;
    sets.state().iter().filter(is_near).map(|set| ObjectRef::from_obj(&**set)).collect()
}

/// Returns the sets of `events` that have to be reconciled: those that have changed, and all sets after a new list. Each is
/// in the store of `writer` before it is returned. Errors are logged and left out: the controller would wait after each,
/// also with what other watches deliver.
pub(crate) fn changed_sets(
    events: impl Stream<Item = Result<Event<CloneSet>, Error>>,
    mut writer: Writer<CloneSet>,
) -> impl Stream<Item = Result<CloneSet, Error>> {
    let store = writer.as_reader();
    let sets = events.map(move |event| {
        if let Ok(event) = &event {
            writer.apply_watcher_event(event);
        }
        let changed = match event {
            Ok(Event::InitDone) => store.state(),
            Ok(Event::Apply(set)) => vec![Arc::new(set)],
            Ok(_) => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "the watch of CloneSets failed; it is started again with back-off");
                Vec::new()
            }
        };
        stream::iter(changed).map(|set| Ok(Arc::unwrap_or_clone(set)))
    });
    sets.flatten()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::channel::mpsc;
    use http::{Request, Response};
    use kube::client::Body;
    use kube::runtime::reflector;
    use podward_runtime::admin::Readiness;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::pod::Pod;
    use crate::test_api::{merge, set};

    /// An API server whose first list has a pod of the set `web`. That pod is deleted before the watch begins, which does
    /// not deliver it: the version is too old.
    fn forgetful() -> Client {
        let lists = Arc::new(AtomicUsize::default());
        let service = service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let lists = Arc::clone(&lists);
            async move {
                let before = lists.fetch_add(usize::from(!is_watch), Ordering::Relaxed);
                let owner = json!({
                    "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "set-uid",
                    "controller": true,
                });
                let pod = json!({"metadata": {
                    "name": "web-0", "namespace": "test", "uid": "uid-0", "resourceVersion": "1", "ownerReferences": [owner],
                }});
                let body = match (is_watch, before) {
                    (true, 0 | 1) => {
                        let expired =
                            json!({"status": "Failure", "reason": "Expired", "message": "", "code": 410});
                        json!({"type": "ERROR", "object": expired})
                    }
                    (true, _) => std::future::pending::<Value>().await,
                    (false, 0) => json!({"metadata": {"resourceVersion": "1"}, "items": [pod]}),
                    (false, _) => json!({"metadata": {"resourceVersion": "3"}, "items": []}),
                };
                Ok::<_, Infallible>(Response::new(Body::from(format!("{body}\n").into_bytes())))
            }
        });
        Client::new(service, "test")
    }

    #[tokio::test]
    async fn a_set_whose_pod_was_deleted_while_the_watch_was_interrupted_is_reconciled() {
        let (changed, mut changes) = mpsc::unbounded();
        let (sets, _writer) = reflector::store();
        let stop = CancellationToken::new();
        let watch = OwnedWatch {
            client: forgetful(),
            listed: Readiness::default().condition("pods"),
            changed,
            sets,
            metrics: WatchMetrics::default(),
            stop: stop.clone(),
        };
        let pods = Arc::<OwnedCache<Pod>>::default();
        let _ends = stop.drop_guard();
        tokio::spawn(follow("pods", "app=web", Arc::clone(&pods), watch));
        let web = ObjectRef::<CloneSet>::new("web").within("test");
        for why in ["the pod was listed", "the pod was deleted"] {
            let next = tokio::time::timeout(std::time::Duration::from_secs(20), changes.next()).await;
            assert_eq!(next.ok().flatten().as_ref(), Some(&web), "{why}");
        }
        assert!(pods.of("set-uid").is_empty());
    }

    /// The definition of OpenKruise accepts these fields.
    #[tokio::test]
    async fn a_set_that_is_invalid_does_not_stop_the_others() {
        let sets = [json!({}), json!({"updateStrategy": {"type": "RollingUpdate"}})];
        let names = ["valid", "invalid"];
        let items = names.iter().zip(sets).map(|(name, change)| {
            let mut item = json!(set(json!({})));
            merge(&mut item, json!({"metadata": {"name": name}, "spec": change}));
            item
        });
        let list =
            json!({"metadata": {"resourceVersion": "1"}, "items": items.collect::<Vec<_>>()}).to_string();
        let service = service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let list = list.clone().into_bytes();
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Body::from(list)))
            }
        });
        let (_, writer) = reflector::store();
        let events = watcher(Api::all(Client::new(service, "test")), watcher::Config::default());
        let mut changed = pin!(changed_sets(events.take(4), writer));
        let mut found = Vec::new();
        while let Some(Ok(set)) = changed.next().await {
            found.push((set.name_any(), set.check().is_ok()));
        }
        found.sort();
        assert_eq!(found, [("invalid".to_owned(), false), ("valid".to_owned(), true)]);
    }

    #[tokio::test]
    async fn a_set_is_in_the_store_when_it_is_reconciled() {
        let replicas = |name: &str, replicas: i32| {
            let mut set = set(json!({"replicas": replicas}));
            set.metadata.name = Some(name.to_owned());
            set
        };
        let (store, writer) = reflector::store();
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(replicas("a", 1))),
            Ok(Event::InitDone),
            Err(Error::NoResourceVersion),
            // Both have changed while the watch was interrupted.
            Ok(Event::Init),
            Ok(Event::InitApply(replicas("a", 2))),
            Ok(Event::InitApply(replicas("b", 2))),
            Ok(Event::InitDone),
            Ok(Event::Apply(replicas("a", 3))),
            Ok(Event::Delete(replicas("b", 3))),
        ];
        let mut changed = pin!(changed_sets(stream::iter(events), writer));
        let mut found = Vec::new();
        while let Some(set) = changed.next().await {
            let set = set.unwrap();
            let stored = store.get(&ObjectRef::from_obj(&set)).map(|set| set.spec.replicas);
            assert_eq!(stored, Some(set.spec.replicas), "{}", set.name_any());
            found.push((set.name_any(), set.spec.replicas));
        }
        found[1..3].sort();
        let found: Vec<_> = found.iter().map(|(name, replicas)| (&**name, *replicas)).collect();
        assert_eq!(found, [("a", 1), ("a", 2), ("b", 2), ("a", 3)]);
    }
}
