//! Expected finalizers that nobody will ever put back, because the Service behind them is gone or selects other pods.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use podward_core::service_of;

use crate::cached_pod::CachedPod;
use crate::error::Error;

const DEADLINE: Duration = Duration::from_secs(5);

/// The Services (namespace, name) that `pod` expects a finalizer of and hasn't got one.
pub(crate) fn missing_services(pod: &CachedPod) -> Vec<(String, String)> {
    let view = pod.view();
    let Ok(expected) = view.expected_finalizers() else { return Vec::new() };
    expected
        .missing(view.finalizers)
        .filter_map(|(employer, _)| service_of(employer))
        .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        .collect()
}

/// The employers among the expected finalizers of `pod` that are Services which will never hold it.
///
/// Asks the API server itself: only its clear "not found", or a selector that it returned, counts; an error never does.
pub(crate) async fn dead_services(client: &Client, pod: &CachedPod) -> Result<Vec<String>, Error> {
    let view = pod.view();
    let mut dead = Vec::new();
    for (namespace, name) in missing_services(pod) {
        let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
        let what = "look up a Service that is expected to hold";
        let service = tokio::time::timeout(DEADLINE, api.get_opt(&name))
            .await
            .map_err(|_| Error::TimedOut { what, pod: pod.key(), after: DEADLINE })?
            .map_err(|source| Error::api(what, pod.key(), source))?;
        let selects =
            service.is_some_and(|service| namespace == pod.key().namespace && selects(&service, view.labels));
        if !selects {
            dead.push(format!("Service/{namespace}/{name}"));
        }
    }
    Ok(dead)
}

fn selects(service: &Service, labels: &BTreeMap<String, String>) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| {
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_selects_by_all_its_labels() {
        let service = |selector| -> Service {
            serde_json::from_value(json!({"spec": {"selector": selector}})).unwrap()
        };
        let labels =
            BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "front".to_owned())]);
        assert!(selects(&service(json!({"app": "web"})), &labels));
        assert!(!selects(&service(json!({"app": "web", "tier": "back"})), &labels));
        assert!(!selects(&service(json!({})), &labels), "no selector selects nothing");
        assert!(!selects(&serde_json::from_value(json!({})).unwrap(), &labels));
    }
}
