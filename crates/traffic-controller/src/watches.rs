//! The watches that keep the world.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_stream};
use kube::{Api, Client};
use podward_core::UnixNanos;
use podward_runtime::admin::Condition;
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::world::{Key, NodeObject, Origin, ServiceObject, SliceObject, Slim, World};

const SWEEP: Duration = Duration::from_secs(60);

/// How a kind of object goes into the world.
pub(crate) trait Kept: Slim {
    fn put(&self, key: Key, world: &mut World, watched: bool, now: UnixNanos) -> bool;
    fn remove(key: &Key, world: &mut World, now: UnixNanos);
    /// A list is complete, and these were in it.
    fn keep(listed: &HashSet<Key>, world: &mut World, now: UnixNanos);
}

impl Kept for SliceObject {
    fn put(&self, key: Key, world: &mut World, watched: bool, now: UnixNanos) -> bool {
        let origin = if watched { Origin::Watched } else { self.listed() };
        self.slice().is_some_and(|slice| world.put_slice(key, slice, origin, now))
    }

    fn remove(key: &Key, world: &mut World, now: UnixNanos) {
        world.remove_slice(key, Origin::Watched, now);
    }

    fn keep(listed: &HashSet<Key>, world: &mut World, now: UnixNanos) {
        world.keep_slices(listed, now);
        world.slices_are_known(now);
    }
}

impl Kept for ServiceObject {
    fn put(&self, key: Key, world: &mut World, _: bool, _: UnixNanos) -> bool {
        world.put_service(&key, self.service());
        true
    }

    fn remove(key: &Key, world: &mut World, now: UnixNanos) {
        world.remove_service(key, Origin::Watched, now);
    }

    fn keep(listed: &HashSet<Key>, world: &mut World, now: UnixNanos) {
        world.keep_services(listed, now);
    }
}

impl Kept for NodeObject {
    fn put(&self, key: Key, world: &mut World, _: bool, _: UnixNanos) -> bool {
        world.put_node(&key.name, self.node())
    }

    fn remove(key: &Key, world: &mut World, _: UnixNanos) {
        world.remove_node(&key.name);
    }

    fn keep(listed: &HashSet<Key>, world: &mut World, _: UnixNanos) {
        world.keep_nodes(listed);
    }
}

/// Keeps all objects of kind `K` until `stop`. `filled` holds from the first complete list on: what is known then may be old, but never
/// less than all.
pub(crate) async fn keep<K: Kept>(
    client: Client,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
    filled: Condition,
    stop: CancellationToken,
) {
    let mut events =
        watch_stream(Api::<K>::all(client), watcher::Config::default()).default_backoff().boxed();
    let mut listed: Option<HashSet<Key>> = None;
    while let Some(event) = stop.run_until_cancelled(events.try_next()).await {
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                metrics.watch(K::KIND, false);
                tracing::warn!(kind = K::KIND, %error, "watch; it is taken up again with back-off");
                continue;
            }
        };
        let now = hub.clock.now();
        let news = {
            let mut world = hub.world.lock();
            take::<K>(event, &mut listed, &mut world, &filled, now)
        };
        metrics.watch(K::KIND, true);
        if news {
            hub.changed();
        }
    }
}

fn take<K: Kept>(
    event: Event<K>,
    listed: &mut Option<HashSet<Key>>,
    world: &mut World,
    filled: &Condition,
    now: UnixNanos,
) -> bool {
    match event {
        Event::Init => {
            *listed = Some(HashSet::new());
            false
        }
        Event::InitApply(object) => {
            let key = Key::of(object.meta());
            if let Some(listed) = listed {
                listed.insert(key.clone());
            }
            object.put(key, world, false, now)
        }
        Event::InitDone => {
            K::keep(&listed.take().unwrap_or_default(), world, now);
            if filled.set(true) {
                tracing::info!(kind = K::KIND, "listed");
            }
            true
        }
        Event::Apply(object) => object.put(Key::of(object.meta()), world, true, now),
        Event::Delete(object) => {
            K::remove(&Key::of(object.meta()), world, now);
            true
        }
    }
}

/// Throws away what need not be remembered any more, until `stop`.
pub(crate) async fn sweep(hub: Arc<Hub>, metrics: Arc<Metrics>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
        let sizes = {
            let mut world = hub.world.lock();
            world.sweep(hub.clock.now());
            world.sizes()
        };
        metrics.sizes(sizes);
    }
}
