//! PREPARE: the pod is drained.

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::Bounded;

use super::data_path_changes::DataPathChanges;
use super::in_flight::{InFlightCount, requests_ended};
use super::interrupted_watch::interrupted_watch;
use super::node_proxies::NodeProxies;
use super::prepare_progress::PrepareProgress;
use super::propagation::propagation;
use super::slices::not_ready_in_slices;
use super::traffic_verdict::{TrafficVerdict, VerdictPart};
use super::wait_times::WaitTimes;
use crate::clock::after;
use crate::index::{PodEndpoints, ServiceKind, ServiceMembership};

/// Upper bound for the time in which a kubelet may still report a pod as Ready by a gate that is False (0.7 s was measured
/// on a busy node).
const KUBELET_LAG: Duration = Duration::from_secs(1);

/// Returns `Done` when no Service sends the pod traffic and the requests in flight have ended.
pub(crate) fn prepare(
    endpoints: &PodEndpoints,
    nodes: &NodeProxies,
    count: &InFlightCount,
    progress: &mut PrepareProgress,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> TrafficVerdict {
    if let Some(interrupted) = interrupted_watch(endpoints) {
        // What the data paths had applied may have changed meanwhile. And without this time, nobody reads connections.
        progress.may_receive_requests();
        return interrupted;
    }
    let (mut slices_level, mut slices) = match not_ready_in_slices(endpoints) {
        VerdictPart::Done(level, words) => (level, words),
        VerdictPart::Wait(words, until) => {
            *progress = PrepareProgress {
                saw_ready: progress.saw_ready || is_ready_by_kubelet(endpoints),
                unlisted_since: progress.unlisted_since,
                ..PrepareProgress::default()
            };
            return TrafficVerdict::pending(words, until);
        }
    };
    if was_never_sent(endpoints, count, wait_times, now) {
        let end = after(*progress.not_ready_since.get_or_insert(now), KUBELET_LAG);
        let words = format!("{slices}; the pod was never Ready");
        return match now < end {
            true => {
                let reason = format!("{words}: waiting until its kubelet has observed the readiness gate");
                TrafficVerdict::pending(reason, Some(end))
            }
            false => TrafficVerdict::done(slices_level.max(Bounded), words),
        };
    }
    // The pod or the Service is new. The slice that follows may show an earlier state of the pod.
    if let Some(service) = endpoints.services.iter().find(|service| service.selects && service.slices == 0) {
        let end = after(*progress.unlisted_since.get_or_insert(now), wait_times.propagation);
        if now < end {
            let reason = format!("{slices}; no EndpointSlice of Service {} lists the pod yet", service.key);
            return TrafficVerdict::pending(reason, Some(end));
        }
    }
    let not_ready_since = *progress.not_ready_since.get_or_insert(now);
    let sending: Vec<&ServiceMembership> = endpoints
        .services
        .iter()
        .filter(|service| service.kind != ServiceKind::ExternalName && !service.publishes_not_ready)
        .collect();
    let changes = DataPathChanges::of(endpoints, &sending).with_former(endpoints);
    // The pod may have left a Service just before, also a headless one. After the first of these times its traffic has
    // ended.
    let ends = endpoints
        .may_have_left_since
        .map(|since| (after(since, wait_times.unseen()), after(since, wait_times.retention())));
    if let Some((end, _)) = ends.filter(|(_, known)| now < *known) {
        slices += "; the pod may have left a Service before this process started or while its watch was interrupted";
        if now < end {
            progress.may_receive_requests();
            return TrafficVerdict::pending(slices, Some(end));
        }
        slices_level = slices_level.max(Bounded);
        if changes.is_empty() {
            slices += ", and no proxy was read";
        }
    }
    if changes.is_empty() && !count.is_of_pod() {
        return TrafficVerdict::done(slices_level, slices);
    }
    let (proxies_level, proxies) = match propagation(&changes, nodes, wait_times, now) {
        VerdictPart::Done(level, words) => (level, words),
        VerdictPart::Wait(words, until) => {
            progress.may_receive_requests();
            return TrafficVerdict::pending(format!("{slices}; {words}"), until);
        }
    };
    // The pod was not ready for another reason when the gate became False. Until its kubelet has observed the gate, it
    // may report the pod as Ready, and requests may arrive. The question is asked when the gate is False, so the time
    // counts from the first evaluation. That needs no other clock.
    let end = after(progress.unlisted_since.unwrap_or(not_ready_since), KUBELET_LAG);
    if sending.iter().any(|service| service.exists) && !progress.saw_ready && now < end {
        progress.may_receive_requests();
        let reason =
            format!("{slices}; {proxies}; waiting until its kubelet has observed the readiness gate");
        return TrafficVerdict::pending(reason, Some(end));
    }
    let since = *progress.propagated_since.get_or_insert(now);
    match requests_ended(count, since, progress, wait_times, now) {
        VerdictPart::Done(level, words) => {
            let words: Vec<String> =
                [slices, proxies, words].into_iter().filter(|text| !text.is_empty()).collect();
            TrafficVerdict::done(slices_level.max(proxies_level).max(level), words.join("; "))
        }
        VerdictPart::Wait(words, until) => {
            TrafficVerdict::pending(format!("{slices}; {proxies}; {words}"), until)
        }
    }
}

/// Returns true if a slice that Kubernetes writes shows the pod as ready or serving: its kubelet has reported it as
/// Ready. If Kubernetes writes none, those of others count.
fn is_ready_by_kubelet(endpoints: &PodEndpoints) -> bool {
    let follows = |service: &&ServiceMembership| service.exists && !service.publishes_not_ready;
    let by_kubernetes = endpoints.services.iter().filter(follows).any(|service| service.has_selector);
    let mut services = endpoints.services.iter().filter(follows);
    services.any(|service| {
        service.has_selector == by_kubernetes && (service.ready.is_some() || service.serving.is_some())
    })
}

/// Returns true if no Service can have sent the pod traffic: it was never Ready, and no slice has shown it as ready.
fn was_never_sent(
    endpoints: &PodEndpoints,
    count: &InFlightCount,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> bool {
    // The pod may have left a slice that Kubernetes does not write, just before this process started.
    let is_known = endpoints.may_have_left_since.is_none_or(|since| now >= after(since, wait_times.unseen()));
    let has_requests = matches!(count, InFlightCount::Unknown | InFlightCount::Count(1.., _));
    let is_published = endpoints.services.iter().any(|service| service.publishes_not_ready);
    let needs_ready = !is_published && endpoints.ignores_gate.is_none() && !endpoints.may_ignore_gate;
    endpoints.never_sent && is_known && !has_requests && needs_ready
}
