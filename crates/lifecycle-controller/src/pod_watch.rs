//! The leader's watch of opted-in pods.

use std::future::ready;

use futures::{Stream, TryStreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Error, Event};
use podward_kube_util::CachedPod;

/// Returns the pods of `events` that have to be reconciled. Each event is applied to the store of `writer` first, and then
/// passed to `observe`.
///
/// A new version of a pod is left out if it says the same as the stored one, because its reconciliation would decide the
/// same. A reconciliation that waits, or has failed, is repeated by time. After a new list, all pods are reconciled.
pub(crate) fn changed_pods(
    events: impl Stream<Item = Result<Event<CachedPod>, Error>>,
    mut writer: Writer<CachedPod>,
    mut observe: impl FnMut(&Event<CachedPod>),
) -> impl Stream<Item = Result<CachedPod, Error>> {
    let store = writer.as_reader();
    let says_the_same = move |pod: &CachedPod| {
        store.get(&ObjectRef::from_obj(pod)).is_some_and(|known| known.says_the_same_as(pod))
    };
    events
        .try_filter_map(move |event| {
            let is_known = matches!(&event, Event::Apply(pod) if says_the_same(pod));
            writer.apply_watcher_event(&event);
            observe(&event);
            ready(Ok((!is_known).then_some(event)))
        })
        .applied_objects()
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use kube::ResourceExt;
    use kube::runtime::reflector;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, version: &str, app: &str) -> CachedPod {
        let metadata = json!({"name": name, "resourceVersion": version, "labels": {"app": app}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
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
        let pods: Vec<_> = changed_pods(stream::iter(events.map(Ok)), writer, |_| observed += 1)
            .map(|pod| pod.map(|pod| (pod.name_any(), pod.resource_version().to_owned())).unwrap())
            .collect()
            .await;
        let pods: Vec<_> = pods.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
        assert_eq!(pods, [("a", "1"), ("a", "3"), ("b", "4"), ("b", "6"), ("a", "3")]);
        assert_eq!(observed, count);
        assert_eq!(store.len(), 1, "b was not in the second list");
    }
}
