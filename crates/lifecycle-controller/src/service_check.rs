//! Expected finalizers of Services that are gone or select other pods.
//!
//! A pod expects the finalizer of each Service that selected it when it was created. If such a Service is deleted or
//! changes its selector, nothing adds that finalizer, and the pod would never become available. While a pod waits for a
//! Service, the controller reads the Service once after a delay, and again when the Service changes.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use kube::Client;
use parking_lot::Mutex;
use podward_core::service_of;
use podward_kube_util::{ApiError, CachedPod, PodKey};

use crate::service_lookup::service_selectors;

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
/// server answers that the Service does not exist, its selector does not match, or it is in another namespace than the
/// pod.
async fn dead_services(client: &Client, pod: &CachedPod) -> Result<Vec<String>, ApiError> {
    let key = pod.key();
    let missing = missing_services(pod);
    let names = missing.iter().filter(|(namespace, _)| *namespace == key.namespace);
    let names = names.map(|(_, name)| name.as_str());
    let selectors =
        service_selectors("look up a Service that is expected to hold", client, &key, names).await?;
    let is_selected = |namespace: &str, name: &str| {
        namespace == key.namespace
            && selectors.get(name).is_some_and(|selector| selects(selector, pod.labels()))
    };
    let dead = missing.iter().filter(|(namespace, name)| !is_selected(namespace, name));
    Ok(dead.map(|(namespace, name)| format!("Service/{namespace}/{name}")).collect())
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
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
    use crate::service_lookup::fixture::ServiceApi;

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

    fn pod_that_expects(services: impl IntoIterator<Item = String>) -> CachedPod {
        let finalizer = json!("prot.podopslifecycle.kusionstack.io/x");
        let expected: BTreeMap<String, _> =
            services.into_iter().map(|service| (format!("Service/{service}"), &finalizer)).collect();
        let expected = json!({"expectedFinalizers": expected}).to_string();
        serde_json::from_value(json!({"metadata": {
            "name": "web-0", "namespace": "shop", "labels": {"app": "web"},
            "annotations": {AVAILABLE_CONDITIONS: expected},
        }}))
        .unwrap()
    }

    #[tokio::test]
    async fn a_service_of_another_namespace_is_dead_without_a_request() {
        let server = ServiceApi::new([]);
        let pod = pod_that_expects((0..1000).map(|number| format!("other/web-{number}")));
        assert_eq!(dead_services(&server.client(), &pod).await.unwrap().len(), 1000);
        assert_eq!(server.requests(), 0);
    }

    #[tokio::test]
    async fn many_services_are_read_by_a_few_requests() {
        let services = [("api", json!({"app": "api"})), ("none", json!({})), ("web", json!({"app": "web"}))];
        let server = ServiceApi::new(services);
        let unknown = (0..1000).map(|number| format!("shop/unknown-{number}"));
        let known = ["api", "none", "web"].map(|name| format!("shop/{name}"));
        let pod = pod_that_expects(unknown.chain(known));
        let dead = dead_services(&server.client(), &pod).await.unwrap();
        assert_eq!(dead.len(), 1002);
        assert!(!dead.contains(&"Service/shop/web".to_owned()), "it exists and selects the pod");
        assert_eq!(server.requests(), 3, "one page for each Service");
    }

    #[test]
    fn a_selector_matches_by_all_its_labels() {
        let labels =
            BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "front".to_owned())]);
        let selector = |wanted: &[(&str, &str)]| {
            wanted.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(selects(&selector(&[("app", "web")]), &labels));
        assert!(!selects(&selector(&[("app", "web"), ("tier", "back")]), &labels));
        assert!(!selects(&selector(&[]), &labels), "an empty selector matches nothing");
    }
}
