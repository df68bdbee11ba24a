//! Traffic sources of a pod: the EndpointSlices of Services.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{self as slice, EndpointSlice};

use crate::cause::{Case, Cause};
use crate::pod_view::is_ready;
use crate::snapshot::Snapshot;

/// The label of the Service of an EndpointSlice.
const SERVICE: &str = "kubernetes.io/service-name";
/// The label of the controller of an EndpointSlice.
const MANAGER: &str = "endpointslice.kubernetes.io/managed-by";

/// A pod in an EndpointSlice of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// The name of the Service, in the namespace of the pod.
    pub service: String,
    /// The name of the EndpointSlice.
    pub slice: String,
    /// The controller of the EndpointSlice, if it names one.
    pub manager: Option<String>,
    /// Whether the Service sends the pod traffic.
    pub ready: bool,
    /// Whether the pod answers, also while it terminates.
    pub serving: bool,
    /// Whether the pod terminates.
    pub terminating: bool,
}

/// Adds the EndpointSlices that contradict the pod: a Ready pod that is not listed as ready, or not at all; a pod that is not
/// Ready and listed as ready.
pub(crate) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    let is_ready = is_ready(&snapshot.pod);
    let namespace = snapshot.pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut found = endpoints(snapshot);
    found.retain(|found| found.ready != is_ready && !found.terminating);
    for ServiceEndpoint { service: name, slice, manager, .. } in found {
        // The Service wants it so.
        if !is_ready && service(snapshot, &name).is_some_and(publishes_not_ready) {
            continue;
        }
        let of = match manager.as_deref() {
            None | Some("endpointslice-controller.k8s.io") => String::new(),
            Some(manager) => format!(", which {manager} manages,"),
        };
        let what = match is_ready {
            true => {
                format!("is Ready, and EndpointSlice {slice} of Service {name}{of} lists it as not ready")
            }
            false => format!(
                "is not Ready, and EndpointSlice {slice} of Service {name}{of} lists it as ready, so that it gets traffic"
            ),
        };
        let next = format!("kubectl -n {namespace} get endpointslice {slice} -o yaml");
        causes.push(Cause::new(Case::Traffic, format!("Service {namespace}/{name}"), what).next(next));
    }
    if is_ready {
        causes.extend(unlisted(snapshot).into_iter().map(|service| {
            let what = format!("is Ready, and no EndpointSlice of Service {service} lists it");
            let next = format!("kubectl -n {namespace} get endpointslices -l {SERVICE}={service} -o yaml");
            Cause::new(Case::Traffic, format!("Service {namespace}/{service}"), what).next(next)
        }));
    }
}

/// Returns the Services that select the pod, and whose EndpointSlices do not list it.
fn unlisted(snapshot: &Snapshot) -> Vec<String> {
    let empty = BTreeMap::new();
    let labels = snapshot.pod.metadata.labels.as_ref().unwrap_or(&empty);
    let unread = snapshot.is_unread("EndpointSlices");
    let selects = |service: &&Service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = selector.filter(|selector| !selector.is_empty() && !is_external_name(service));
        selector.is_some_and(|all| all.iter().all(|(key, value)| labels.get(key) == Some(value)))
    };
    // Kubernetes adds a pod to no slice of a Service that has other address families.
    let pod_families: Vec<&str> =
        addresses(snapshot).into_iter().map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" }).collect();
    let has_family = |service: &&Service| {
        let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
        let is_unknown = families.is_empty() || pod_families.is_empty();
        is_unknown || families.iter().any(|family| pod_families.contains(&family.as_str()))
    };
    let listed: Vec<String> = endpoints(snapshot).into_iter().map(|found| found.service).collect();
    let names = snapshot.services.iter().filter(selects).filter(has_family);
    let names = names.filter_map(|service| service.metadata.name.clone());
    names.filter(|name| !unread && !listed.contains(name)).collect()
}

/// Returns whether the Service only stands for the name of another host.
fn is_external_name(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"))
}

/// Returns the addresses of the pod.
fn addresses(snapshot: &Snapshot) -> Vec<&str> {
    let status = snapshot.pod.status.as_ref();
    let all = status.iter().flat_map(|status| status.pod_ips.iter().flatten()).map(|ip| ip.ip.as_str());
    all.chain(status.and_then(|status| status.pod_ip.as_deref())).collect()
}

/// Returns the Service of this name.
fn service<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s Service> {
    snapshot.services.iter().find(|service| service.metadata.name.as_deref() == Some(name))
}

fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.publish_not_ready_addresses == Some(true))
}

/// Returns the endpoints of the pod, sorted by Service and slice. Slices that are written by hand may name its address
/// only. Those of a Service that is deleted or has the type ExternalName do not count: no proxy reads them.
#[must_use]
pub fn endpoints(snapshot: &Snapshot) -> Vec<ServiceEndpoint> {
    let uid = snapshot.pod.metadata.uid.as_deref();
    let ips = addresses(snapshot);
    // Pods in the network of the node share its address.
    let host = snapshot.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let is_of_pod = |endpoint: &slice::Endpoint| match named_uid(endpoint) {
        Some(named) => Some(named) == uid,
        None => !host && endpoint.addresses.iter().any(|address| ips.contains(&address.as_str())),
    };
    let of_slice = |slice: &EndpointSlice| {
        let labels = slice.metadata.labels.as_ref()?;
        let endpoint = slice.endpoints.iter().find(|endpoint| is_of_pod(endpoint))?;
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let serving = conditions.serving.unwrap_or(ready);
        Some(ServiceEndpoint {
            service: labels.get(SERVICE)?.clone(),
            slice: slice.metadata.name.clone().unwrap_or_default(),
            manager: labels.get(MANAGER).cloned(),
            ready,
            serving,
            terminating: conditions.terminating.unwrap_or(false),
        })
    };
    let exists = |name: &str| {
        snapshot.is_unread("Services")
            || service(snapshot, name).is_some_and(|service| !is_external_name(service))
    };
    let found = snapshot.slices.iter().filter_map(of_slice);
    let mut found: Vec<_> = found.filter(|endpoint| exists(&endpoint.service)).collect();
    found.sort_by(|one, other| (&one.service, &one.slice).cmp(&(&other.service, &other.slice)));
    found
}

/// Returns the UID that the endpoint refers to. A reference without one counts like none.
fn named_uid(endpoint: &slice::Endpoint) -> Option<&str> {
    endpoint.target_ref.as_ref()?.uid.as_deref().filter(|uid| !uid.is_empty())
}
