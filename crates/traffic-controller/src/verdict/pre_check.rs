//! PRE_CHECK: may the operation start?

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Assumed, Proven};

use super::text::count;
use super::traffic_verdict::TrafficVerdict;
use super::wait_times::WaitTimes;
use crate::clock::{after, between};
use crate::index::{ObjectKey, OtherEndpoints};

/// A Service that shows the pod as ready, with its other endpoints.
#[derive(Clone, Debug)]
pub(crate) struct RemainingEndpoints {
    /// Namespace and name of the Service.
    pub(crate) service: ObjectKey,
    /// The other endpoints.
    pub(crate) others: OtherEndpoints,
}

/// Returns `Pending` while the pod is the last ready endpoint of one of its `services` and another endpoint is
/// starting, but at most for [`WaitTimes::surge`] after `asked_at`. Otherwise returns `Done`.
///
/// The wait exists because kube-proxy falls back to endpoints that are serving while they terminate, and a pod whose
/// gate is False is not serving: it is better to keep the last endpoint. The wait is bounded because an endpoint that
/// never becomes ready must not block the operation.
pub(crate) fn pre_check(
    services: &[RemainingEndpoints],
    wait_times: &WaitTimes,
    asked_at: UnixNanos,
    now: UnixNanos,
) -> TrafficVerdict {
    let last: Vec<&RemainingEndpoints> =
        services.iter().filter(|remaining| remaining.others.ready == 0).collect();
    let end = after(asked_at, wait_times.surge);
    let surge = wait_times.surge.as_secs_f64();
    if let Some(remaining) = last.iter().find(|remaining| remaining.others.starting > 0) {
        let (name, starting) = (&remaining.service, count(remaining.others.starting, "other endpoint"));
        if now < end {
            let waited = between(asked_at, now).as_secs_f64();
            let reason = format!(
                "the pod is the last ready endpoint of Service {name}, {starting} not ready yet: waited {waited:.0} of \
                 {surge} s"
            );
            return TrafficVerdict::pending(reason, Some(end));
        }
        let detail = format!(
            "the pod is the last ready endpoint of Service {name}; {starting} did not become ready within {surge} s"
        );
        return TrafficVerdict::done(Assumed, detail);
    }
    if let Some(remaining) = last.first() {
        let name = &remaining.service;
        let detail = format!(
            "the pod is the last ready endpoint of Service {name}, and no other endpoint is starting"
        );
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
