//! PRE_CHECK: may the operation start?

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Assumed, Proven};

use super::interrupted_watch::interrupted_watch_but_nodes;
use super::text::count;
use super::traffic_verdict::TrafficVerdict;
use super::wait_times::WaitTimes;
use crate::clock::{after, between};
use crate::index::{LocalEndpoints, LocalPolicy, ObjectKey, OtherEndpoints, PodEndpoints};

/// A Service that shows the pod as ready, with its other endpoints.
#[derive(Clone, Debug)]
pub(crate) struct RemainingEndpoints {
    /// Namespace and name of the Service.
    pub(crate) service: ObjectKey,
    /// The other endpoints.
    pub(crate) others: OtherEndpoints,
}

impl RemainingEndpoints {
    /// Returns in what the pod is the last ready endpoint, with the number of other endpoints that are starting there.
    /// `None` if another endpoint is ready.
    fn is_last(&self) -> Option<LastEndpoint> {
        let (name, others) = (&self.service, &self.others);
        if others.ready == 0 {
            let scope = format!("the pod is the last ready endpoint of Service {name}");
            return Some(LastEndpoint { scope, starting: others.starting, consequence: "" });
        }
        let LocalEndpoints { policy, node, starting, .. } =
            others.local.as_ref().filter(|local| local.ready == 0)?;
        let scope = format!(
            "the pod is the last ready endpoint of Service {name} ({}) on node {node}",
            policy.as_str()
        );
        let consequence = match policy {
            LocalPolicy::External => {
                "; the node drops what load balancers send to it until their health checks have seen this"
            }
            LocalPolicy::Internal => "; clients on the node then have no endpoint",
        };
        Some(LastEndpoint { scope, starting: *starting, consequence })
    }
}

/// The pod is the last ready endpoint of a Service, or of a Service on a node.
struct LastEndpoint {
    /// The sentence that says so.
    scope: String,
    /// The number of other endpoints that are starting.
    starting: usize,
    /// What follows from the removal.
    consequence: &'static str,
}

/// Returns `Pending` while a watch is interrupted without which the `endpoints` of the pod and its `services` may be out
/// of date. Also while the pod is the last ready endpoint of one of its `services` and another endpoint is starting, but
/// at most for [`WaitTimes::surge`] after `asked_at`, by the clock of `now`. Otherwise returns `Done`. The same holds for
/// the last endpoint on a node, if the Service makes a node use only its own endpoints.
///
/// The wait exists because kube-proxy falls back to endpoints that are serving while they terminate, and a pod whose
/// gate is False is not serving: it is better to keep the last endpoint. The wait is bounded because an endpoint that
/// never becomes ready must not block the operation.
///
/// With `externalTrafficPolicy: Local` the health check of a node fails when kube-proxy has no ready endpoint there, and
/// from the same moment the node drops what load balancers still send. So nothing can be drained first, and the
/// evidence is ASSUMED.
pub(crate) fn pre_check(
    endpoints: &PodEndpoints,
    services: &[RemainingEndpoints],
    wait_times: &WaitTimes,
    asked_at: UnixNanos,
    now: UnixNanos,
) -> TrafficVerdict {
    if let Some(interrupted) = interrupted_watch_but_nodes(endpoints) {
        return interrupted;
    }
    let last: Vec<LastEndpoint> = services.iter().filter_map(RemainingEndpoints::is_last).collect();
    let end = after(asked_at, wait_times.surge);
    let surge = wait_times.surge.as_secs_f64();
    if let Some(LastEndpoint { scope, starting, consequence }) = last.iter().find(|last| last.starting > 0) {
        let starting = count(*starting, "other endpoint");
        if now < end {
            let waited = between(asked_at, now).as_secs_f64();
            let reason = format!("{scope}, {starting} not ready yet: waited {waited:.0} of {surge} s");
            return TrafficVerdict::pending(reason, Some(end));
        }
        let detail = format!("{scope}; {starting} did not become ready within {surge} s{consequence}");
        return TrafficVerdict::done(Assumed, detail);
    }
    if let Some(LastEndpoint { scope, consequence, .. }) = last.first() {
        let detail = format!("{scope}, and no other endpoint is starting{consequence}");
        return TrafficVerdict::done(Assumed, detail);
    }
    let fewest = services.iter().min_by_key(|remaining| remaining.others.ready);
    let detail = fewest.map_or_else(
        || "no Service sends the pod traffic".to_owned(),
        |remaining| {
            let kept = count(remaining.others.ready, "other ready endpoint");
            format!("Service {} keeps {kept}", remaining.service)
        },
    );
    TrafficVerdict::done(Proven, detail)
}
