//! A small map of the cluster's objects, kept true by a watch.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::runtime::watcher::{Error, Event};
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::admin::Condition;

/// A watch that fails for longer isn't relied on. Shorter breaks are usual: a replica of the API server restarts.
const GRACE: Duration = Duration::from_secs(30);
/// Between a failure and the next try: doubled each time, and half of it left to chance.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is read of each object of a watch, by the object's name. Clones share it.
pub struct Watched<V> {
    inner: Arc<RwLock<Inner<V>>>,
}

struct Inner<V> {
    objects: HashMap<String, V>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The first list is still to come.
    Unlisted,
    /// What is known is the present.
    Follows,
    /// What is known is from before this.
    Fails(Instant),
}

/// How a watch is kept.
#[derive(Clone, Debug)]
pub struct Watch {
    /// What is watched, for logs and metrics: `nodes`.
    pub name: &'static str,
    /// Holds from the first list on.
    pub listed: Condition,
    /// Where figures go.
    pub metrics: WatchMetrics,
    /// Whether the API server may not know the resource (a CRD that isn't installed): then there are none, until there is one.
    pub may_be_absent: bool,
    /// Ends it.
    pub stop: CancellationToken,
}

impl<V: Send + Sync + 'static> Watched<V> {
    /// Keeps what `read` takes of the objects in the events of `begin`, until [`Watch::stop`]; objects of which it takes nothing are
    /// not kept. `changed` is told of every change, with all that there is.
    ///
    /// A watch that fails is begun again with a list. A list is the only sure sign that what is known is the present again: a watch
    /// that is taken up where it broke off stays silent until something changes.
    pub fn keep<K, S, B, R, C>(watch: Watch, begin: B, mut read: R, mut changed: C) -> Self
    where
        K: ResourceExt + Send + 'static,
        S: Stream<Item = Result<Event<K>, Error>> + Send,
        B: Fn() -> S + Send + 'static,
        R: FnMut(K) -> Option<V> + Send + 'static,
        C: FnMut(&HashMap<String, V>) + Send + 'static,
    {
        let inner = Arc::new(RwLock::new(Inner { objects: HashMap::new(), standing: Standing::Unlisted }));
        let watched = Self { inner: Arc::clone(&inner) };
        let stop = watch.stop.clone();
        let mut keeper = Keeper { inner, listing: HashMap::new(), watch };
        let work = async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let mut events = pin!(begin());
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => {
                            if matches!(event, Event::InitDone) {
                                pause = FIRST_PAUSE;
                            }
                            keeper.take(event, &mut read, &mut changed);
                        }
                        Err(error) => {
                            keeper.failed(&error, &mut changed);
                            break;
                        }
                    }
                }
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(work).await });
        watched
    }

    /// What is known of the object `name`.
    pub fn get(&self, name: &str) -> Option<V>
    where
        V: Clone,
    {
        self.inner.read().objects.get(name).cloned()
    }

    /// Whether what is known can be relied on: that an object isn't there, too, as far as a moment ago.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match self.inner.read().standing {
            Standing::Unlisted => false,
            Standing::Follows => true,
            Standing::Fails(since) => since.elapsed() < GRACE,
        }
    }
}

impl<V> Clone for Watched<V> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<V> fmt::Debug for Watched<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner.read();
        f.debug_struct("Watched")
            .field("objects", &inner.objects.len())
            .field("standing", &inner.standing)
            .finish()
    }
}

/// Carries events into the map.
struct Keeper<V> {
    inner: Arc<RwLock<Inner<V>>>,
    /// A list that isn't complete yet.
    listing: HashMap<String, V>,
    watch: Watch,
}

impl<V> Keeper<V> {
    fn take<K: ResourceExt>(
        &mut self,
        event: Event<K>,
        read: &mut impl FnMut(K) -> Option<V>,
        changed: &mut impl FnMut(&HashMap<String, V>),
    ) {
        match event {
            Event::Init => {
                self.listing = HashMap::new();
                return;
            }
            Event::InitApply(object) => {
                let name = object.name_any();
                if let Some(value) = read(object) {
                    self.listing.insert(name, value);
                }
                return;
            }
            Event::InitDone => self.listed(),
            Event::Apply(object) => {
                let name = object.name_any();
                let value = read(object);
                let mut inner = self.inner.write();
                match value {
                    Some(value) => inner.objects.insert(name, value),
                    None => inner.objects.remove(&name),
                };
                inner.standing = Standing::Follows;
            }
            Event::Delete(object) => {
                let mut inner = self.inner.write();
                inner.objects.remove(&object.name_any());
                inner.standing = Standing::Follows;
            }
        }
        let inner = self.inner.read();
        self.watch.metrics.follows(self.watch.name, inner.objects.len());
        changed(&inner.objects);
    }

    fn listed(&mut self) {
        let mut inner = self.inner.write();
        inner.objects = std::mem::take(&mut self.listing);
        inner.standing = Standing::Follows;
        if self.watch.listed.set(true) {
            tracing::info!(watch = self.watch.name, objects = inner.objects.len(), "listed");
        }
    }

    fn failed(&mut self, error: &Error, changed: &mut impl FnMut(&HashMap<String, V>)) {
        let name = self.watch.name;
        if self.watch.may_be_absent && is_unknown_resource(error) {
            self.listing = HashMap::new();
            if self.inner.read().standing == Standing::Unlisted || !self.inner.read().objects.is_empty() {
                tracing::warn!(
                    watch = name,
                    "the API server knows no such resource: is the CRD installed? Taken for none"
                );
            }
            self.listed();
            self.watch.metrics.follows(name, 0);
            return changed(&self.inner.read().objects);
        }
        self.watch.metrics.failed(name);
        let mut inner = self.inner.write();
        match inner.standing {
            Standing::Follows => inner.standing = Standing::Fails(Instant::now()),
            Standing::Unlisted | Standing::Fails(_) => {}
        }
        tracing::warn!(watch = name, %error, "the watch failed; it is taken up again with back-off");
    }
}

/// Not found, as the answer to a list: there may be no objects, but there is always a resource to list.
fn is_unknown_resource(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    watch: &'static str,
}

/// Figures of watches. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    objects: Family<Labels, Gauge<i64, AtomicI64>>,
    failing: Family<Labels, Gauge<i64, AtomicI64>>,
    failures: Family<Labels, Counter>,
}

impl WatchMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("watch");
        registry.register("objects", "Objects that are kept of a watch", self.objects.clone());
        registry.register(
            "failing",
            "1 while a watch fails, so that what is known is from before; it is not relied on after 30 s",
            self.failing.clone(),
        );
        registry.register(
            "failures",
            "Times that a watch failed and was taken up again",
            self.failures.clone(),
        );
    }

    /// `watch` is up to date, and so many objects are kept of it.
    pub fn follows(&self, watch: &'static str, objects: usize) {
        let labels = Labels { watch };
        self.objects.get_or_create(&labels).set(i64::try_from(objects).unwrap_or(i64::MAX));
        self.failing.get_or_create(&labels).set(0);
    }

    /// `watch` failed, and is taken up again.
    pub fn failed(&self, watch: &'static str) {
        let labels = Labels { watch };
        self.failing.get_or_create(&labels).set(1);
        self.failures.get_or_create(&labels).inc();
    }
}
