//! RELEASE: the pod is gone.

use podward_core::hooks::EvidenceLevel::{Assumed, Proven};

use super::interrupted_watch::interrupted_watch_but_nodes;
use super::text::join_names;
use super::traffic_verdict::TrafficVerdict;
use crate::index::PodEndpoints;

/// Returns `Done` when no slice shows the pod as ready. The pod is deleted, terminating, or `opted_out`.
///
/// The slices of a terminating pod are not ready regardless of the state of its node, so this waits for no node. The
/// proxies are assumed to follow: a pod that is gone has nothing left to protect.
pub(crate) fn release(endpoints: &PodEndpoints, opted_out: bool) -> TrafficVerdict {
    if opted_out {
        return TrafficVerdict::done(
            Assumed,
            "the pod has opted out; its Services no longer depend on Podward",
        );
    }
    if let Some(interrupted) = interrupted_watch_but_nodes(endpoints) {
        return interrupted;
    }
    let managed = endpoints.services.iter();
    let managed =
        managed.filter(|service| service.exists && service.has_selector && !service.publishes_not_ready);
    for service in managed {
        if let Some(slice) = &service.ready {
            let reason =
                format!("EndpointSlice {slice} of Service {} still shows the pod as ready", service.key);
            return TrafficVerdict::pending(reason, None);
        }
    }
    if endpoints.services.iter().all(|service| service.slices == 0) {
        return TrafficVerdict::done(Proven, "no EndpointSlice of its namespace names the pod");
    }
    let others: Vec<String> = endpoints
        .services
        .iter()
        .filter(|service| service.ready.is_some())
        .map(|service| service.key.to_string())
        .collect();
    if others.is_empty() {
        let detail = "no EndpointSlice shows the pod as ready; the proxies are assumed to follow";
        return TrafficVerdict::done(Assumed, detail);
    }
    let why = "which publish pods that are not ready, are deleted or have the type ExternalName, or have slices that \
         Kubernetes does not write";
    TrafficVerdict::done(Assumed, format!("not ready except in {}, {why}", join_names(&others)))
}
