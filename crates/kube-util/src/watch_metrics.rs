//! The metrics of watches.

use std::pin::Pin;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::watcher::{Error, Event};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, timeout_at};

/// A watch that continues where it failed delivers nothing until an object changes. It counts as working if it has not
/// failed again for this time, which is longer than the pause between two attempts.
pub(crate) const RECOVERY: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    watch: &'static str,
}

/// Metrics of watches. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    objects: Family<WatchLabels, Gauge<i64, AtomicI64>>,
    failing: Family<WatchLabels, Gauge<i64, AtomicI64>>,
    failures: Family<WatchLabels, Counter>,
}

impl WatchMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("watch");
        registry.register("objects", "Objects in the map of a watch", self.objects.clone());
        registry.register(
            "failing",
            "1 while a watch fails; its map may be out of date and is not used after 30 s",
            self.failing.clone(),
        );
        registry.register(
            "failures",
            "Times that a watch failed and was started again",
            self.failures.clone(),
        );
    }

    /// Records that `watch` is up to date and stores `objects` objects.
    pub fn follows(&self, watch: &'static str, objects: usize) {
        let labels = WatchLabels { watch };
        self.objects.get_or_create(&labels).set(i64::try_from(objects).unwrap_or(i64::MAX));
        self.works(watch);
    }

    /// Records that `watch` failed.
    pub fn failed(&self, watch: &'static str) {
        let labels = WatchLabels { watch };
        self.failing.get_or_create(&labels).set(1);
        self.failures.get_or_create(&labels).inc();
    }

    fn works(&self, watch: &'static str) {
        self.failing.get_or_create(&WatchLabels { watch }).set(0);
    }

    /// Returns a guard that removes the state of `watch` when it is dropped: a watch that has ended does not fail.
    #[must_use]
    pub(crate) fn series(&self, watch: &'static str) -> WatchSeries {
        WatchSeries { watch, metrics: self.clone() }
    }

    /// Returns `events`, and records in the metrics whether `watch` fails. The number of objects is not recorded. The
    /// state of the watch is removed when the stream is dropped. If the resource `may_be_absent`, a list of a resource
    /// that the API server does not know is no failure.
    pub fn observe<K: Send, S: Stream<Item = Result<Event<K>, Error>> + Send>(
        &self,
        watch: &'static str,
        may_be_absent: bool,
        events: S,
    ) -> impl Stream<Item = S::Item> + Send + use<K, S> {
        self.observe_with(watch, may_be_absent, events, RECOVERY)
    }

    fn observe_with<K: Send, S: Stream<Item = Result<Event<K>, Error>> + Send>(
        &self,
        watch: &'static str,
        may_be_absent: bool,
        events: S,
        recovery: Duration,
    ) -> impl Stream<Item = S::Item> + Send + use<K, S> {
        let observed = Observed {
            events: Box::pin(events),
            series: self.series(watch),
            may_be_absent,
            recovery,
            works_at: None,
        };
        stream::unfold(observed, |mut observed| async move {
            let event = observed.next().await?;
            Some((event, observed))
        })
    }
}

/// The state of a watch in the metrics, which is removed with this value. Failures stay counted.
#[derive(Debug)]
pub(crate) struct WatchSeries {
    watch: &'static str,
    metrics: WatchMetrics,
}

impl Drop for WatchSeries {
    fn drop(&mut self) {
        let labels = WatchLabels { watch: self.watch };
        self.metrics.objects.remove(&labels);
        self.metrics.failing.remove(&labels);
    }
}

/// A watch whose failures are recorded.
struct Observed<S> {
    events: Pin<Box<S>>,
    series: WatchSeries,
    may_be_absent: bool,
    recovery: Duration,
    /// When the watch counts as working, if it has failed and does not fail again.
    works_at: Option<Instant>,
}

impl<K, S: Stream<Item = Result<Event<K>, Error>>> Observed<S> {
    async fn next(&mut self) -> Option<S::Item> {
        loop {
            let event = match self.works_at {
                None => self.events.next().await,
                Some(at) => match timeout_at(at, self.events.next()).await {
                    Ok(event) => event,
                    Err(_) => {
                        self.works();
                        continue;
                    }
                },
            };
            if let Some(event) = &event {
                self.record(event);
            }
            return event;
        }
    }

    fn record(&mut self, event: &S::Item) {
        match event {
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => self.works(),
            // Only a complete list shows that the watch works.
            Ok(Event::Init | Event::InitApply(_)) => self.works_at = None,
            Err(error) if self.may_be_absent && is_absent(error) => self.works(),
            Err(_) => {
                self.series.metrics.failed(self.series.watch);
                self.works_at = Some(Instant::now() + self.recovery);
            }
        }
    }

    fn works(&mut self) {
        self.works_at = None;
        self.series.metrics.works(self.series.watch);
    }
}

fn is_absent(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc::{UnboundedSender, unbounded};
    use kube::core::Status;

    use super::*;

    type Item = Result<Event<()>, Error>;

    fn failure(code: u16) -> Error {
        Error::InitialListFailed(kube::Error::Api(Box::new(Status::failure("", "").with_code(code))))
    }

    /// Returns the metrics, the sender of events, and the observed watch, which continues after failures.
    fn observed(
        may_be_absent: bool,
    ) -> (WatchMetrics, UnboundedSender<Item>, Pin<Box<impl Stream<Item = Item>>>) {
        let (metrics, (sender, events)) = (WatchMetrics::default(), unbounded());
        let events = metrics.observe_with("pods", may_be_absent, events, Duration::from_millis(20));
        (metrics, sender, Box::pin(events))
    }

    fn failing(metrics: &WatchMetrics) -> Option<i64> {
        metrics.failing.get(&WatchLabels { watch: "pods" }).map(|gauge| gauge.get())
    }

    #[tokio::test]
    async fn a_watch_fails_until_a_list_is_complete_or_an_object_changes() {
        let (metrics, sender, mut events) = observed(false);
        let mut next = async |item: Item| {
            sender.unbounded_send(item).unwrap();
            drop(events.next().await);
            failing(&metrics)
        };
        assert_eq!(next(Err(failure(403))).await, Some(1));
        assert_eq!(next(Ok(Event::Init)).await, Some(1));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(next(Ok(Event::InitApply(()))).await, Some(1), "the list is not complete");
        assert_eq!(next(Ok(Event::InitDone)).await, Some(0));
        assert_eq!(next(Err(failure(404))).await, Some(1));
        assert_eq!(next(Ok(Event::Apply(()))).await, Some(0));
        assert_eq!(metrics.failures.get_or_create(&WatchLabels { watch: "pods" }).get(), 2);
    }

    #[tokio::test]
    async fn a_watch_that_continues_in_silence_works_again() {
        let (metrics, sender, mut events) = observed(false);
        sender.unbounded_send(Err(failure(500))).unwrap();
        drop(events.next().await);
        assert_eq!(failing(&metrics), Some(1));
        let silence = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
        assert!(silence.is_err());
        assert_eq!(failing(&metrics), Some(0));
    }

    #[tokio::test]
    async fn a_resource_that_may_be_absent_is_no_failure() {
        let (metrics, sender, mut events) = observed(true);
        sender.unbounded_send(Err(failure(404))).unwrap();
        assert!(events.next().await.is_some_and(|event| event.is_err()));
        assert_eq!(failing(&metrics), Some(0));
        sender.unbounded_send(Err(failure(403))).unwrap();
        drop(events.next().await);
        assert_eq!(failing(&metrics), Some(1));
    }

    #[tokio::test]
    async fn a_watch_that_has_ended_does_not_fail() {
        let (metrics, sender, mut events) = observed(false);
        sender.unbounded_send(Err(failure(500))).unwrap();
        drop(events.next().await);
        metrics.objects.get_or_create(&WatchLabels { watch: "pods" }).set(7);
        drop(events);
        assert_eq!(failing(&metrics), None);
        assert!(metrics.objects.get(&WatchLabels { watch: "pods" }).is_none());
    }
}
