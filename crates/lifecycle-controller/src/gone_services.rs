//! Finalizers of Services that do not exist any more.
//!
//! The traffic controller of a Service holds a pod by a finalizer. If the Service is deleted first, some traffic
//! controllers never remove that finalizer, and the pod would wait for ever. While a pod waits to be released, the
//! controller looks for these Services: once after a delay, and again when such a Service changes. In a namespace that
//! is being deleted, nobody can create the Service again, so the controller removes the finalizer. Elsewhere the
//! condition of the pod names the finalizer and how to remove it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::keys::Stage;
use podward_core::{Operations, PodView, service_of};
use podward_kube_util::{ApiError, CachedPod, EventDraft, PodKey, pod_call};

use crate::service_lookup::service_selectors;

/// How long a pod waits for a release before its Services are looked up.
const CHECK_DELAY: Duration = Duration::from_secs(5);
/// How long a Service must have been missing before its finalizer is removed: the time for its traffic controller to
/// do that.
const MISSING_LIMIT: Duration = Duration::from_secs(20);
/// The time between two checks of a pod that waits for a missing Service: its namespace may be deleted later.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A Service that does not exist and whose finalizer holds the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoneService {
    /// The consumer, such as `Service/shop/web`.
    pub(crate) consumer: String,
    /// The finalizer by which it holds the pod.
    pub(crate) finalizer: String,
    /// True if the Service cannot come back and had its time: the controller removes the finalizer.
    pub(crate) is_released: bool,
}

impl GoneService {
    /// Returns the sentence of the condition of `pod` about this Service.
    pub(crate) fn sentence(&self, pod: &PodKey) -> String {
        let Self { consumer, finalizer, .. } = self;
        let PodKey { namespace, name } = pod;
        format!(
            "{consumer} does not exist: if its traffic controller does not remove the finalizer {finalizer}, and no load \
             balancer sends requests to the pod, remove it: kubectl -n {namespace} edit pod {name}"
        )
    }

    /// Returns the event about the removal of the finalizer.
    pub(crate) fn event(&self) -> EventDraft {
        let Self { consumer, finalizer, .. } = self;
        let note = format!(
            "removed the finalizer {finalizer}: {consumer} does not exist any more, and nobody can create it again, because \
             the namespace is being deleted"
        );
        EventDraft { reason: "ServiceGone", note }
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct GoneServices {
    /// The missing Services that hold the pod.
    pub(crate) services: Vec<GoneService>,
    /// The time until the next check.
    pub(crate) next_check: Option<Duration>,
}

/// The checks of the pods that wait for the release by a Service.
pub(crate) struct GoneServiceChecks {
    client: Client,
    pods: Mutex<HashMap<PodKey, PodCheck>>,
}

#[derive(Debug)]
struct PodCheck {
    uid: String,
    /// The names of the Services that hold the pod.
    services: Vec<String>,
    /// `None` once every Service was found.
    due: Option<Instant>,
    missing_since: Option<Instant>,
    missing: Vec<GoneService>,
}

impl GoneServiceChecks {
    /// Returns the checks of a new leader.
    pub(crate) fn new(client: Client) -> Self {
        GoneServiceChecks { client, pods: Mutex::default() }
    }

    /// Looks up the Services that hold `pod` while it waits for them, if that is due at `now`. Between two checks the
    /// last result is returned.
    ///
    /// # Errors
    /// If the API server cannot be asked. An error never counts as a missing Service.
    pub(crate) async fn check(&self, pod: &CachedPod, now: Instant) -> Result<GoneServices, ApiError> {
        let holding = match is_to_be_released(&pod.view()) {
            true => holding_services(pod),
            false => Vec::new(),
        };
        let Some(due) = self.due(pod, &holding, now) else { return Ok(GoneServices::default()) };
        if due > now {
            return Ok(GoneServices { services: self.known(pod, &holding), next_check: Some(due - now) });
        }
        let names = holding.iter().map(|held| held.name.as_str());
        let what = "look up a Service whose finalizer holds";
        let existing = service_selectors(what, &self.client, &pod.key(), names).await?;
        let missing: Vec<_> = holding.into_iter().filter(|held| !existing.contains_key(&held.name)).collect();
        let is_final = !missing.is_empty() && self.is_namespace_terminating(pod).await?;
        Ok(self.checked(pod, due, missing, is_final, now))
    }

    /// Makes the checks of the pods due that the Service `name` holds and is to release, because it has changed. Returns
    /// these pods.
    pub(crate) fn renew(&self, namespace: &str, name: &str) -> Vec<PodKey> {
        let mut pods = self.pods.lock();
        let is_held = |pod: &PodKey, check: &PodCheck| {
            pod.namespace == namespace && check.services.iter().any(|held| held == name)
        };
        let waiting = pods.iter_mut().filter(|(pod, check)| is_held(pod, check));
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

    /// Returns when the check of `pod` is due, or `None` if no check is due.
    fn due(&self, pod: &CachedPod, holding: &[HoldingService], now: Instant) -> Option<Instant> {
        let mut pods = self.pods.lock();
        if holding.is_empty() {
            pods.remove(&pod.key());
            return None;
        }
        let new = || PodCheck {
            uid: pod.uid().to_owned(),
            services: Vec::new(),
            due: Some(now + CHECK_DELAY),
            missing_since: None,
            missing: Vec::new(),
        };
        let check = pods.entry(pod.key()).or_insert_with(new);
        if check.uid != pod.uid() {
            *check = new();
        }
        check.services = holding.iter().map(|held| held.name.clone()).collect();
        check.due
    }

    /// Returns the missing Services of the last check that still hold the pod.
    fn known(&self, pod: &CachedPod, holding: &[HoldingService]) -> Vec<GoneService> {
        let pods = self.pods.lock();
        let missing = pods.get(&pod.key()).map(|check| check.missing.as_slice()).unwrap_or_default();
        let holds = |gone: &&GoneService| holding.iter().any(|held| held.finalizer == gone.finalizer);
        missing.iter().filter(holds).cloned().collect()
    }

    /// Records a check at `now` that was due at `due`. `is_final` is true if the missing Services cannot be created
    /// again.
    fn checked(
        &self,
        pod: &CachedPod,
        due: Instant,
        missing: Vec<HoldingService>,
        is_final: bool,
        now: Instant,
    ) -> GoneServices {
        let mut pods = self.pods.lock();
        let Some(check) = pods.get_mut(&pod.key()) else { return GoneServices::default() };
        let (next, is_released) = if missing.is_empty() {
            check.missing_since = None;
            (None, false)
        } else {
            let since = *check.missing_since.get_or_insert(now);
            let limit = since + MISSING_LIMIT;
            (Some(if is_final { limit.max(now) } else { now + CHECK_INTERVAL }), is_final && now >= limit)
        };
        // A check that was renewed meanwhile stays due: a Service has changed after it was looked up.
        if check.due == Some(due) {
            check.due = next;
        }
        check.missing = missing.into_iter().map(|held| held.gone(is_released)).collect();
        let next_check = check.due.map(|due| due.saturating_duration_since(now));
        GoneServices { services: check.missing.clone(), next_check }
    }

    /// Reads the namespace by a list with its name, because the controller may list and not get namespaces.
    async fn is_namespace_terminating(&self, pod: &CachedPod) -> Result<bool, ApiError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let only = ListParams::default().fields(&format!("metadata.name={}", pod.key().namespace));
        let found = pod_call("look up the namespace of", &pod.key(), api.list_metadata(&only)).await?;
        Ok(found.items.iter().all(|namespace| namespace.metadata.deletion_timestamp.is_some()))
    }
}

/// A Service in the namespace of a pod that holds the pod by a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HoldingService {
    name: String,
    consumer: String,
    finalizer: String,
}

impl HoldingService {
    fn gone(self, is_released: bool) -> GoneService {
        GoneService { consumer: self.consumer, finalizer: self.finalizer, is_released }
    }
}

/// Returns whether consumers are to release the pod: it is being deleted, or an operation prepares.
fn is_to_be_released(pod: &PodView<'_>) -> bool {
    pod.terminating
        || Operations::parse(pod.labels).iter().any(|(_, operation)| operation.has(Stage::Preparing))
}

/// Returns the Services in the namespace of `pod` that hold it by a finalizer.
fn holding_services(pod: &CachedPod) -> Vec<HoldingService> {
    let view = pod.view();
    let Ok(expected) = view.expected_finalizers() else { return Vec::new() };
    let held = |finalizer: &str| {
        let consumer = expected.consumer(finalizer)?;
        let (namespace, name) = service_of(consumer)?;
        (namespace == pod.key().namespace).then(|| HoldingService {
            name: name.to_owned(),
            consumer: consumer.to_owned(),
            finalizer: finalizer.to_owned(),
        })
    };
    view.protection_finalizers().filter_map(held).collect()
}

#[cfg(test)]
mod tests;
