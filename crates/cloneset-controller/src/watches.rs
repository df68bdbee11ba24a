//! Watches of the objects that sets own.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use podward_api::CloneSet;
use podward_kube_util::watched::WatchMetrics;
use podward_runtime::admin::ReadinessCondition;
use tokio_util::sync::CancellationToken;

use crate::cache::OwnedCache;
use crate::owned::{is_orphan, set_of};
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
    let events = watcher(Api::<K>::all(client), config).default_backoff();
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
                metrics.follows(name, cache.end_list());
                if listed.set(true) {
                    tracing::info!(watch = name, "listed");
                }
            }
            Ok(Event::Delete(object)) => {
                cache.delete(&object);
                notify(affected(&object, &sets));
            }
            Err(error) => {
                metrics.failed(name);
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
