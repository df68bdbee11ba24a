//! The leader's watch of Services.

use std::collections::HashSet;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Error, Event};

/// Namespace and name of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServiceName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ServiceName {
    fn of(service: &PartialObjectMeta<Service>) -> Self {
        ServiceName { namespace: service.namespace().unwrap_or_default(), name: service.name_any() }
    }
}

/// Returns the Services of `events` that have changed, and those that do not exist any more: also if they were deleted while
/// the watch was interrupted, which no event says. Errors are logged and left out.
pub(crate) fn changed_services(
    events: impl Stream<Item = Result<Event<PartialObjectMeta<Service>>, Error>>,
) -> impl Stream<Item = ServiceName> {
    let (mut known, mut listed) = (HashSet::new(), HashSet::new());
    let changed = events.map(move |event| match event {
        Ok(Event::Init) => {
            listed = HashSet::new();
            Vec::new()
        }
        Ok(Event::InitApply(service)) => {
            let service = ServiceName::of(&service);
            listed.insert(service.clone());
            vec![service]
        }
        Ok(Event::InitDone) => {
            let before = std::mem::replace(&mut known, std::mem::take(&mut listed));
            before.into_iter().filter(|service| !known.contains(service)).collect()
        }
        Ok(Event::Apply(service)) => {
            let service = ServiceName::of(&service);
            known.insert(service.clone());
            vec![service]
        }
        Ok(Event::Delete(service)) => {
            let service = ServiceName::of(&service);
            known.remove(&service);
            vec![service]
        }
        Err(error) => {
            tracing::warn!(%error, "the watch of Services failed; it is started again with back-off");
            Vec::new()
        }
    });
    changed.flat_map(stream::iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> PartialObjectMeta<Service> {
        let mut service = PartialObjectMeta::<Service>::default();
        (service.metadata.namespace, service.metadata.name) =
            (Some("shop".to_owned()), Some(name.to_owned()));
        service
    }

    #[tokio::test]
    async fn a_service_that_was_deleted_while_the_watch_was_interrupted_has_changed() {
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(service("listed"))),
            Ok(Event::InitApply(service("deleted"))),
            Ok(Event::InitDone),
            Ok(Event::Delete(service("deleted"))),
            Ok(Event::Apply(service("created"))),
            Err(Error::NoResourceVersion),
            // This list is interrupted.
            Ok(Event::Init),
            Ok(Event::InitApply(service("other"))),
            Ok(Event::Init),
            Ok(Event::InitApply(service("listed"))),
            Ok(Event::InitDone),
            Ok(Event::Init),
            Ok(Event::InitDone),
        ];
        let changed: Vec<_> = changed_services(stream::iter(events)).collect().await;
        assert!(changed.iter().all(|service| service.namespace == "shop"));
        let names: Vec<&str> = changed.iter().map(|service| &*service.name).collect();
        let expected = ["listed", "deleted", "deleted", "created", "other", "listed", "created", "listed"];
        assert_eq!(names, expected);
    }
}
