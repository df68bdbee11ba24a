//! The watches that keep the world.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use kube::runtime::watcher as watch_stream;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use podward_core::UnixNanos;
use podward_runtime::admin::Condition;
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::world::{Key, NodeObject, Origin, ServiceObject, SliceObject, Slim, World};

const SWEEP: Duration = Duration::from_secs(60);
/// Between a failure and the next try: doubled each time, and half of it left to chance.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
///
/// A watch that fails is begun again with a list, the one sure sign that what is known is the present again: a watch that is taken up
/// where it broke off stays silent until something changes.
pub(crate) async fn keep<K: Kept>(
    client: Client,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
    filled: Condition,
    stop: CancellationToken,
) {
    metrics.watch(K::KIND, false);
    let mut pause = FIRST_PAUSE;
    let work = async {
        loop {
            let events = watch_stream(Api::<K>::all(client.clone()), watcher::Config::default());
            let error = follow(events, &hub, &metrics, &filled, &mut pause).await;
            metrics.watch(K::KIND, false);
            tracing::warn!(kind = K::KIND, %error, "watch; it is begun again with back-off");
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Takes in what a watch tells until it fails; says why it did.
async fn follow<K: Kept>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    hub: &Hub,
    metrics: &Metrics,
    filled: &Condition,
    pause: &mut Duration,
) -> String {
    let mut events = pin!(events);
    let mut listed: Option<HashSet<Key>> = None;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return "it has ended".to_owned(),
            Err(error) => return error.to_string(),
        };
        let now = hub.clock.now();
        let news = {
            let mut world = hub.world.lock();
            take::<K>(event, &mut listed, &mut world, filled, now)
        };
        // A list that has only begun shows nothing yet, neither that it succeeds nor that what is known is old.
        if listed.is_none() {
            metrics.watch(K::KIND, true);
            *pause = FIRST_PAUSE;
        }
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

#[cfg(test)]
mod tests {
    use futures::stream;
    use podward_runtime::admin::Readiness;
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;

    fn node() -> NodeObject {
        serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()
    }

    #[tokio::test]
    async fn a_list_that_has_only_begun_says_nothing_of_the_watch() {
        let (hub, metrics) = (Hub::new(Clock::start()), Metrics::new());
        let filled = Readiness::default().condition("nodes");
        let mut pause = LONGEST_PAUSE;
        let mut take = async |events: Vec<Event<NodeObject>>| {
            let broken = Err(watcher::Error::NoResourceVersion);
            let events = stream::iter(events.into_iter().map(Ok).chain([broken]));
            let error = follow(events, &hub, &metrics, &filled, &mut pause).await;
            assert!(!error.is_empty());
            (metrics.is_up(NodeObject::KIND), pause)
        };
        metrics.watch(NodeObject::KIND, false);
        let begun = vec![Event::Init, Event::InitApply(node())];
        assert_eq!(take(begun.clone()).await, (false, LONGEST_PAUSE));
        assert_eq!(take(vec![Event::Init, Event::InitDone]).await, (true, FIRST_PAUSE));
        // Begun anew while all is well: it doesn't flicker.
        assert_eq!(take(begun).await, (true, FIRST_PAUSE));
        metrics.watch(NodeObject::KIND, false);
        assert_eq!(take(vec![Event::Apply(node())]).await, (true, FIRST_PAUSE));
    }
}
