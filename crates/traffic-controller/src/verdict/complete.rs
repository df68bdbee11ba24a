//! COMPLETE: the pod is added to traffic.

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::Proven;

use super::data_path_changes::DataPathChanges;
use super::interrupted_watch::interrupted_watch;
use super::node_proxies::NodeProxies;
use super::propagation::propagation;
use super::text::join_names;
use super::traffic_verdict::{TrafficVerdict, VerdictPart};
use super::wait_times::WaitTimes;
use crate::index::{AddressFamily, PodEndpoints, ServiceKind, ServiceMembership};

/// Returns `Done` when all Services that select the pod send traffic to it.
pub(crate) fn complete(
    endpoints: &PodEndpoints,
    nodes: &NodeProxies,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> TrafficVerdict {
    if let Some(interrupted) = interrupted_watch(endpoints) {
        return interrupted;
    }
    let selecting: Vec<&ServiceMembership> =
        endpoints.services.iter().filter(|service| service.selects).collect();
    if selecting.is_empty() {
        return TrafficVerdict::done(Proven, "no Service selects the pod");
    }
    if let Some(service) = selecting.iter().find(|service| service.ready.is_none()) {
        let missing = if service.slices == 0 { "lists the pod yet" } else { "shows the pod as ready yet" };
        let reason = format!("no EndpointSlice of Service {} {missing}", service.key);
        return TrafficVerdict::pending(reason, None);
    }
    let missing = |service: &ServiceMembership| {
        AddressFamily::ALL.into_iter().find(|family| service.missing[family.index()])
    };
    if let Some((service, family)) = selecting.iter().find_map(|service| Some((service, missing(service)?))) {
        let (key, family) = (&service.key, family.as_str());
        return TrafficVerdict::pending(
            format!("no EndpointSlice of Service {key} shows the pod as ready by {family} yet"),
            None,
        );
    }
    let ready: Vec<String> = selecting.iter().map(|service| service.key.to_string()).collect();
    let ready = format!("ready in the slices of {}", join_names(&ready));
    // Clients of a headless Service find the pod with their next DNS query, so there is nothing to wait for.
    let proxied: Vec<&ServiceMembership> =
        selecting.into_iter().filter(|service| service.kind != ServiceKind::Headless).collect();
    if proxied.is_empty() {
        return TrafficVerdict::done(Proven, ready);
    }
    match propagation(&DataPathChanges::of(endpoints, &proxied), nodes, wait_times, now) {
        VerdictPart::Done(level, words) => TrafficVerdict::done(level, format!("{ready}; {words}")),
        VerdictPart::Wait(words, until) => TrafficVerdict::pending(format!("{ready}; {words}"), until),
    }
}
