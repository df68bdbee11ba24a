//! A small map of objects in the cluster that a watch keeps up to date.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::runtime::watcher::{Error, Event};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use podward_runtime::admin::ReadinessCondition;
use podward_runtime::retry::{API_SERVER, delay_after};

use crate::watch_metrics::RECOVERY;

pub use crate::watch_metrics::WatchMetrics;

/// The result of a watch is not used after the watch has failed for this time. Shorter failures are normal, for example
/// when a replica of the API server restarts.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(30);

/// A value for each watched object, by the name of the object. Clones share the map.
pub struct Watched<V> {
    inner: Arc<RwLock<Inner<V>>>,
}

struct Inner<V> {
    objects: HashMap<String, V>,
    state: WatchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// The first list has not arrived yet.
    Unlisted,
    /// The map is up to date.
    Follows,
    /// The watch has failed since this time. The map may be out of date.
    Fails(Instant),
}

/// The settings of a watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The name of the watch in logs and metrics, for example `nodes`.
    pub name: &'static str,
    /// Set to true after the first list.
    pub listed: ReadinessCondition,
    /// The metrics to update.
    pub metrics: WatchMetrics,
    /// True if the API server may not know the resource because its CRD is not installed. The map is empty until it is
    /// installed.
    pub may_be_absent: bool,
    /// Ends the watch.
    pub stop: CancellationToken,
}

impl<V: Send + Sync + 'static> Watched<V> {
    /// Starts a watch that runs until [`Watch::stop`]. `begin` returns its events. `read` returns the value to store
    /// for an object, or `None` if the object is not stored. `changed` is called after every change, with the whole
    /// map.
    ///
    /// A failed watch starts again with a list. Only a list shows that the map is up to date again: a watch that
    /// continues where it failed delivers nothing until an object changes.
    pub fn keep<K, S, B, R, C>(watch: Watch, begin: B, mut read: R, mut changed: C) -> Self
    where
        K: ResourceExt + Send + 'static,
        S: Stream<Item = Result<Event<K>, Error>> + Send,
        B: Fn() -> S + Send + 'static,
        R: FnMut(K) -> Option<V> + Send + 'static,
        C: FnMut(&HashMap<String, V>) + Send + 'static,
    {
        let inner = Arc::new(RwLock::new(Inner { objects: HashMap::new(), state: WatchState::Unlisted }));
        let watched = Self { inner: Arc::clone(&inner) };
        let stop = watch.stop.clone();
        let series = watch.metrics.series(watch.name);
        let mut task = WatchTask { inner, listing: HashMap::new(), watch };
        let work = async move {
            let mut failures = 0;
            loop {
                let mut listed_at: Option<Instant> = None;
                let mut events = pin!(begin());
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => {
                            match event {
                                Event::Init | Event::InitApply(_) => {}
                                Event::InitDone => listed_at = Some(Instant::now()),
                                Event::Apply(_) | Event::Delete(_) => failures = 0,
                            }
                            task.apply(event, &mut read, &mut changed);
                        }
                        Err(error) => {
                            task.failed(&error, &mut changed);
                            break;
                        }
                    }
                }
                // The list alone is no success: the watch after it may never start.
                if listed_at.is_some_and(|at| at.elapsed() > RECOVERY) {
                    failures = 0;
                }
                failures += 1;
                tokio::time::sleep(delay_after(API_SERVER, failures)).await;
            }
        };
        tokio::spawn(async move {
            stop.run_until_cancelled(work).await;
            drop(series);
        });
        watched
    }

    /// Returns the value of the object `name`. `None` if the object is not stored.
    pub fn get(&self, name: &str) -> Option<V>
    where
        V: Clone,
    {
        self.inner.read().objects.get(name).cloned()
    }

    /// Returns true if the map is up to date, or was until less than 30 s ago. Only then does a missing object count as
    /// absent.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match self.inner.read().state {
            WatchState::Unlisted => false,
            WatchState::Follows => true,
            WatchState::Fails(since) => since.elapsed() < FAILURE_TIMEOUT,
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
        f.debug_struct("Watched").field("objects", &inner.objects.len()).field("state", &inner.state).finish()
    }
}

/// Applies events to the map.
struct WatchTask<V> {
    inner: Arc<RwLock<Inner<V>>>,
    /// The objects of a list that is not complete yet.
    listing: HashMap<String, V>,
    watch: Watch,
}

impl<V> WatchTask<V> {
    fn apply<K: ResourceExt>(
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
                inner.state = WatchState::Follows;
            }
            Event::Delete(object) => {
                let mut inner = self.inner.write();
                inner.objects.remove(&object.name_any());
                inner.state = WatchState::Follows;
            }
        }
        let inner = self.inner.read();
        self.watch.metrics.follows(self.watch.name, inner.objects.len());
        changed(&inner.objects);
    }

    fn listed(&mut self) {
        let mut inner = self.inner.write();
        inner.objects = std::mem::take(&mut self.listing);
        inner.state = WatchState::Follows;
        if self.watch.listed.set(true) {
            tracing::info!(watch = self.watch.name, objects = inner.objects.len(), "listed");
        }
    }

    fn failed(&mut self, error: &Error, changed: &mut impl FnMut(&HashMap<String, V>)) {
        let name = self.watch.name;
        if self.watch.may_be_absent && is_unknown_resource(error) {
            self.listing = HashMap::new();
            if self.inner.read().state == WatchState::Unlisted || !self.inner.read().objects.is_empty() {
                tracing::warn!(
                    watch = name,
                    "the API server does not know the resource, which counts as an empty list; is the CRD installed?"
                );
            }
            self.listed();
            self.watch.metrics.follows(name, 0);
            return changed(&self.inner.read().objects);
        }
        self.watch.metrics.failed(name);
        let mut inner = self.inner.write();
        match inner.state {
            WatchState::Follows => inner.state = WatchState::Fails(Instant::now()),
            WatchState::Unlisted | WatchState::Fails(_) => {}
        }
        tracing::warn!(watch = name, %error, "the watch failed; it is started again with back-off");
    }
}

/// Returns true if a list failed with 404: the API server does not know the resource. A known resource without objects
/// returns an empty list instead.
#[must_use]
pub fn is_unknown_resource(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::stream;
    use k8s_openapi::api::core::v1::Node;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[tokio::test]
    async fn a_stopped_watch_leaves_no_state_in_the_metrics() {
        let (metrics, stop) = (WatchMetrics::default(), CancellationToken::new());
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let until = async |is_met: &dyn Fn(&str) -> bool| {
            let wait = async {
                while !is_met(&text()) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), wait)
                .await
                .unwrap_or_else(|_| panic!("{}", text()));
        };
        let watch = Watch {
            name: "nodes",
            listed: ReadinessCondition::default(),
            metrics: metrics.clone(),
            may_be_absent: false,
            stop: stop.clone(),
        };
        let events = || stream::iter([Err::<Event<Node>, _>(Error::NoResourceVersion)]);
        Watched::<()>::keep(watch, events, |_| None, |_| ());
        until(&|text| text.contains("watch_failing{watch=\"nodes\"} 1")).await;
        stop.cancel();
        until(&|text| !text.contains("watch_failing{watch=\"nodes\"}")).await;
        assert!(text().contains("watch_failures_total{watch=\"nodes\"} 1"), "{}", text());
    }

    /// As with a role that allows to list, but not to watch.
    #[tokio::test]
    async fn delays_grow_while_lists_succeed_and_watches_do_not_start() {
        let (begun, stop) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
        let watch = Watch {
            name: "nodes",
            listed: ReadinessCondition::default(),
            metrics: WatchMetrics::default(),
            may_be_absent: false,
            stop: stop.clone(),
        };
        let count = Arc::clone(&begun);
        let begin = move || {
            count.fetch_add(1, Ordering::Relaxed);
            stream::iter([Ok(Event::<Node>::Init), Ok(Event::InitDone), Err(Error::NoResourceVersion)])
        };
        let start = Instant::now();
        Watched::<()>::keep(watch, begin, |_| None, |_| ());
        while begun.load(Ordering::Relaxed) < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        // At least 0.25 s, 0.5 s and 1 s. Three first delays are 1.5 s at most.
        assert!(start.elapsed() >= Duration::from_millis(1750), "{:?}", start.elapsed());
    }
}
