//! Traffic sources of a pod that is Ready.

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::cause::{Case, Cause};
use crate::snapshot::Snapshot;

/// The label of the Service of an EndpointSlice.
const SERVICE: &str = "kubernetes.io/service-name";

/// A pod in the EndpointSlices of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// The name of the Service, in the namespace of the pod.
    pub service: String,
    /// Whether the Service sends the pod traffic.
    pub ready: bool,
    /// Whether the pod answers, also while it terminates.
    pub serving: bool,
    /// Whether the pod terminates.
    pub terminating: bool,
}

/// Adds the Services whose EndpointSlices contradict the pod, which is Ready.
pub(crate) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    for ServiceEndpoint { service, ready, terminating, .. } in endpoints(snapshot) {
        if ready || terminating {
            continue;
        }
        let namespace = snapshot.pod.metadata.namespace.as_deref().unwrap_or_default();
        let what = format!("is Ready, and the EndpointSlice of Service {service} says that it is not");
        let next = format!("kubectl -n {namespace} get endpointslices -l {SERVICE}={service} -o yaml");
        causes.push(Cause::new(Case::Traffic, format!("Service {namespace}/{service}"), what).next(next));
    }
}

/// Returns the Services with an EndpointSlice that contains the pod, sorted by name.
#[must_use]
pub fn endpoints(snapshot: &Snapshot) -> Vec<ServiceEndpoint> {
    let uid = snapshot.pod.metadata.uid.as_deref();
    let of_slice = |slice: &EndpointSlice| {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE)?.clone();
        let endpoint = slice.endpoints.iter().find(|endpoint| {
            endpoint.target_ref.as_ref().is_some_and(|target| target.uid.as_deref() == uid)
        })?;
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let serving = conditions.serving.unwrap_or(ready);
        Some(ServiceEndpoint {
            service,
            ready,
            serving,
            terminating: conditions.terminating.unwrap_or(false),
        })
    };
    let mut found: Vec<_> = snapshot.slices.iter().filter_map(of_slice).collect();
    found.sort_by(|one, other| one.service.cmp(&other.service));
    found.dedup_by(|one, other| one.service == other.service);
    found
}
