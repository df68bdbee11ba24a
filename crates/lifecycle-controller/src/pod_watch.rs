//! The leader's watch of opted-in pods.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Error, Event};
use podward_core::Operations;
use podward_core::keys::SERVICE_AVAILABLE;
use podward_kube_util::CachedPod;
use tokio::task::yield_now;

/// Returns the pods of `events` that have to be reconciled. Each event is applied to the store of `writer` first, and then
/// passed to `observe`.
///
/// A new version of a pod is left out if it says the same as the stored one, because its reconciliation would decide the
/// same. A reconciliation that waits, or has failed, is repeated by time. After a new list, all pods are reconciled, those
/// that are in service without an operation last.
///
/// Errors are logged and left out: the controller would wait after each, also with what other watches deliver.
pub(crate) fn changed_pods(
    events: impl Stream<Item = Result<Event<CachedPod>, Error>>,
    mut writer: Writer<CachedPod>,
    mut observe: impl FnMut(&Event<CachedPod>),
) -> impl Stream<Item = Result<CachedPod, Error>> {
    let store = writer.as_reader();
    let events = events.filter_map(|event| async {
        event
            .inspect_err(
                |error| tracing::warn!(%error, "the watch of pods failed; it is started again with back-off"),
            )
            .ok()
    });
    let pods = events.map(move |event| {
        let says_the_same =
            |pod| store.get(&ObjectRef::from_obj(pod)).is_some_and(|known| known.says_the_same_as(pod));
        let is_known = matches!(&event, Event::Apply(pod) if says_the_same(pod));
        writer.apply_watcher_event(&event);
        observe(&event);
        match event {
            Event::InitDone => Box::pin(listed(store.state())).left_stream(),
            Event::Apply(pod) if !is_known => stream::iter(Some(pod)).right_stream(),
            _ => stream::iter(None).right_stream(),
        }
    });
    // Later events do not wait for the pods at rest.
    pods.flatten_unordered(None).map(Ok)
}

/// Returns `pods`, those at rest last and one by one: the controller takes the pods that it has been given in no
/// particular order.
fn listed(pods: Vec<Arc<CachedPod>>) -> impl Stream<Item = CachedPod> {
    let (at_rest, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_at_rest(pod));
    let at_rest = stream::iter(at_rest).then(|pod| async {
        yield_now().await;
        pod
    });
    stream::iter(others).chain(at_rest).map(Arc::unwrap_or_clone)
}

/// Returns whether `pod` is in service and has no operation.
fn is_at_rest(pod: &CachedPod) -> bool {
    let labels = pod.labels();
    labels.contains_key(SERVICE_AVAILABLE) && Operations::parse(labels).iter().next().is_none()
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use kube::ResourceExt;
    use kube::runtime::reflector;
    use podward_core::keys::Stage;
    use serde_json::{Value, json};

    use super::*;

    fn labeled(name: &str, version: &str, labels: Value) -> CachedPod {
        let metadata = json!({"name": name, "resourceVersion": version, "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn pod(name: &str, version: &str, app: &str) -> CachedPod {
        labeled(name, version, json!({"app": app}))
    }

    #[tokio::test]
    async fn a_version_that_says_the_same_is_stored_and_not_reconciled() {
        let (store, writer) = reflector::store();
        let events = [
            Event::Init,
            Event::InitApply(pod("a", "1", "shop")),
            Event::InitDone,
            Event::Apply(pod("a", "2", "shop")),
            Event::Apply(pod("a", "3", "mail")),
            Event::Apply(pod("b", "4", "shop")),
            Event::Delete(pod("b", "5", "shop")),
            Event::Apply(pod("b", "6", "shop")),
            Event::Init,
            Event::InitApply(pod("a", "3", "mail")),
            Event::InitDone,
        ];
        let mut observed = 0;
        let count = events.len();
        // The controller does not wait after an error.
        let events = stream::iter(events.map(Ok)).chain(stream::iter([Err(Error::NoResourceVersion)]));
        let pods: Vec<_> = changed_pods(events, writer, |_| observed += 1)
            .map(|pod| pod.map(|pod| (pod.name_any(), pod.resource_version().to_owned())).unwrap())
            .collect()
            .await;
        let pods: Vec<_> = pods.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
        assert_eq!(pods, [("a", "1"), ("a", "3"), ("b", "4"), ("b", "6"), ("a", "3")]);
        assert_eq!(observed, count);
        assert_eq!(store.len(), 1, "b was not in the second list");
    }

    #[tokio::test]
    async fn pods_at_rest_are_last_after_a_list() {
        let pods = [
            labeled("at-rest-0", "1", json!({SERVICE_AVAILABLE: "1"})),
            labeled("at-rest-1", "2", json!({SERVICE_AVAILABLE: "1"})),
            labeled("entering", "3", json!({})),
            labeled("operated", "4", json!({SERVICE_AVAILABLE: "1", Stage::Operating.key("a"): "1"})),
        ];
        let listed = pods.into_iter().map(Event::InitApply);
        let later = [Event::InitDone, Event::Apply(labeled("later", "5", json!({})))];
        let events: Vec<_> = [Event::Init].into_iter().chain(listed).chain(later).map(Ok).collect();
        let (_store, writer) = reflector::store();
        let pods = changed_pods(stream::iter(events), writer, |_| ());
        let mut names: Vec<_> = pods.map(|pod| pod.unwrap().name_any()).collect().await;
        let at_rest = names.split_off(3);
        names.sort();
        assert_eq!(names, ["entering", "later", "operated"]);
        assert_eq!(at_rest.len(), 2, "{at_rest:?}");
    }
}
