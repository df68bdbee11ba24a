//! Expected finalizers of Services that are gone or select other pods.
//!
//! A pod expects the finalizer of each Service that selected it when it was created. If such a Service is deleted or
//! changes its selector, nothing adds that finalizer, and the pod would never become available. While a pod waits for a
//! Service, the controller reads the Service once after a delay, and again when the Service changes.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::{is_object_name, service_of};
use podward_kube_util::{ApiError, CachedPod, PodKey, pod_call};

/// How long a pod waits for a Service before the Service is read.
const CHECK_DELAY: Duration = Duration::from_secs(5);

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct CheckedServices {
    /// The consumers, such as `Service/shop/web`, that will never hold the pod.
    pub(crate) dead: Vec<String>,
    /// The time until the check is due.
    pub(crate) next_check: Option<Duration>,
}

/// The checks of the pods that wait for a Service.
pub(crate) struct ServiceChecks {
    client: Client,
    pods: Mutex<HashMap<PodKey, PodCheck>>,
}

#[derive(Debug)]
struct PodCheck {
    uid: String,
    /// The Services that the pod waits for: namespace and name.
    services: Vec<(String, String)>,
    /// `None` once the check is done.
    due: Option<Instant>,
}

impl ServiceChecks {
    /// Returns the checks of a new leader.
    pub(crate) fn new(client: Client) -> Self {
        ServiceChecks { client, pods: Mutex::default() }
    }

    /// Reads the Services that `pod` waits for, if that is due.
    ///
    /// # Errors
    /// If the API server cannot be asked. An error never counts as a missing Service.
    pub(crate) async fn check(&self, pod: &CachedPod) -> Result<CheckedServices, ApiError> {
        let Some(due) = self.due(pod) else { return Ok(CheckedServices::default()) };
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Ok(CheckedServices { next_check: Some(wait), ..CheckedServices::default() });
        }
        let dead = dead_services(&self.client, pod).await?;
        // The removal of a dead Service can be rejected, so the check is done only when there is nothing to remove.
        if dead.is_empty() {
            self.done(&pod.key(), due);
        }
        Ok(CheckedServices { dead, next_check: None })
    }

    /// Makes the checks of the pods due that wait for the Service `name`, because it has changed. Returns these pods.
    pub(crate) fn renew(&self, namespace: &str, name: &str) -> Vec<PodKey> {
        let mut pods = self.pods.lock();
        let waits =
            |check: &PodCheck| check.services.iter().any(|(of, service)| of == namespace && service == name);
        let waiting = pods.iter_mut().filter(|(_, check)| waits(check));
        let renewed = waiting.map(|(pod, check)| {
            check.due = Some(Instant::now());
            pod.clone()
        });
        renewed.collect()
    }

    /// Forgets the pods that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&PodKey) -> bool) {
        self.pods.lock().retain(|pod, _| exists(pod));
    }

    /// Returns when the check of `pod` is due, or `None` if it waits for no Service or the check is done.
    fn due(&self, pod: &CachedPod) -> Option<Instant> {
        let view = pod.view();
        let waits = view.ready && !view.terminating;
        let services = if waits { missing_services(pod) } else { Vec::new() };
        let mut pods = self.pods.lock();
        if services.is_empty() {
            pods.remove(&pod.key());
            return None;
        }
        let new = || PodCheck {
            uid: pod.uid().to_owned(),
            services: Vec::new(),
            due: Some(Instant::now() + CHECK_DELAY),
        };
        let check = pods.entry(pod.key()).or_insert_with(new);
        if check.uid != pod.uid() {
            *check = new();
        }
        check.services = services;
        check.due
    }

    /// Marks the check that was due at `due` as done, unless it was renewed meanwhile.
    fn done(&self, pod: &PodKey, due: Instant) {
        if let Some(check) = self.pods.lock().get_mut(pod).filter(|check| check.due == Some(due)) {
            check.due = None;
        }
    }
}

/// Returns the Services (namespace, name) whose finalizer `pod` expects and does not have.
fn missing_services(pod: &CachedPod) -> Vec<(String, String)> {
    let view = pod.view();
    let Ok(expected) = view.expected_finalizers() else { return Vec::new() };
    expected
        .missing(view.finalizers)
        .filter_map(|(consumer, _)| service_of(consumer))
        .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        .collect()
}

/// Returns the consumers among the expected finalizers of `pod` that are Services which will never hold it: the API
/// server answers that the Service does not exist, its selector does not match, or no Service can have its name.
async fn dead_services(client: &Client, pod: &CachedPod) -> Result<Vec<String>, ApiError> {
    let mut dead = Vec::new();
    for (namespace, name) in missing_services(pod) {
        let service = if is_object_name(&namespace) && is_object_name(&name) {
            let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
            let what = "look up a Service that is expected to hold";
            pod_call(what, &pod.key(), api.get_opt(&name)).await?
        } else {
            None
        };
        let is_selected = service
            .is_some_and(|service| namespace == pod.key().namespace && selects(&service, pod.labels()));
        if !is_selected {
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
    use std::convert::Infallible;

    use hyper::Request;
    use kube::client::Body;
    use podward_core::keys::AVAILABLE_CONDITIONS;
    use podward_support::api_answers::Answer;
    use serde_json::json;

    use super::*;

    /// The library refuses to send a request with such a name, or sends it to another path.
    #[tokio::test]
    async fn a_service_that_cannot_exist_is_dead_without_a_request() {
        let requests = tower::service_fn(async |request: Request<Body>| -> Result<Answer, Infallible> {
            panic!("{} was not expected", request.uri())
        });
        let client = Client::new(requests, "shop");
        for name in ["my web", "..", "web?limit=1"] {
            let consumer = format!("Service/shop/{name}");
            let expected =
                json!({"expectedFinalizers": {&consumer: "prot.podopslifecycle.kusionstack.io/x"}});
            let pod: CachedPod = serde_json::from_value(json!({"metadata": {
                "name": "web-0", "namespace": "shop", "annotations": {AVAILABLE_CONDITIONS: expected.to_string()},
            }}))
            .unwrap();
            assert_eq!(dead_services(&client, &pod).await.unwrap(), [consumer]);
        }
    }

    #[test]
    fn a_selector_matches_by_all_its_labels() {
        let service = |selector| -> Service {
            serde_json::from_value(json!({"spec": {"selector": selector}})).unwrap()
        };
        let labels =
            BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "front".to_owned())]);
        assert!(selects(&service(json!({"app": "web"})), &labels));
        assert!(!selects(&service(json!({"app": "web", "tier": "back"})), &labels));
        assert!(!selects(&service(json!({})), &labels), "an empty selector matches nothing");
        assert!(!selects(&serde_json::from_value(json!({})).unwrap(), &labels));
    }
}
