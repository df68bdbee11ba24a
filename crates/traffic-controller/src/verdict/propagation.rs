//! The propagation of a change from the EndpointSlices to the data paths.

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Bounded, Proven};

use super::data_path_changes::DataPathChanges;
use super::node_proxies::{NodeProxies, NodeProxy};
use super::text::{count, join_first};
use super::traffic_verdict::VerdictPart;
use super::wait_times::WaitTimes;
use crate::clock::{after, between};
use crate::index::{DataPath, EndpointChange};
use crate::proxy::RulesState;

/// The maximum wait for a kube-proxy that responds and has not written a change: two of its sync periods, after each of
/// which it repeats a sync that failed.
const PENDING_PROXY_WAIT: Duration = Duration::from_secs(60);
/// The minimum wait for a kube-proxy that responds but has received nothing since a change, and for one that hangs or
/// has exited. The first may be cut off from the API server; the others forward traffic by the rules that they wrote
/// before. So the wait is longer than for a kube-proxy that could never be read. It is bounded, because these signs are
/// indirect.
const STALE_PROXY_WAIT: Duration = Duration::from_secs(30);

/// Checks that every data path has applied the last change of the pod.
pub(super) fn propagation(
    changes: &DataPathChanges,
    nodes: &NodeProxies,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> VerdictPart {
    if changes.is_empty() {
        return VerdictPart::Done(Proven, "no slice has listed the pod".to_owned());
    }
    let mut parts = Vec::new();
    if let Some(change) = changes.get(DataPath::KubeProxy) {
        parts.push(match nodes {
            NodeProxies::NotConfigured => bounded_wait(
                change,
                wait_times.propagation,
                now,
                "the proxies, because reading them is not configured",
            ),
            NodeProxies::Read(nodes) => kube_proxies(change, nodes, wait_times, now),
        });
    }
    if let Some((whom, change)) = changes.bypass() {
        parts.push(bounded_wait(change, wait_times.propagation, now, whom));
    }
    if let Some(change) = changes.get(DataPath::OtherProxy) {
        parts.push(bounded_wait(change, wait_times.propagation, now, "a proxy that is not kube-proxy"));
    }
    if let Some(change) = changes.get(DataPath::Dns) {
        let whom = "clients that cache the DNS answer of a headless Service";
        parts.push(bounded_wait(change, wait_times.dns_ttl, now, whom));
    }
    join_parts(parts)
}

/// Combines parts: the weakest evidence, or all waits with the latest time.
fn join_parts(parts: Vec<VerdictPart>) -> VerdictPart {
    let (mut level, mut words, mut waits, mut until) = (Proven, Vec::new(), Vec::new(), None);
    for part in parts {
        match part {
            VerdictPart::Done(part_level, part_words) => {
                level = level.max(part_level);
                words.push(part_words);
            }
            VerdictPart::Wait(part_words, part_until) => {
                waits.push(part_words);
                until = until.max(part_until);
            }
        }
    }
    match waits.is_empty() {
        true => VerdictPart::Done(level, words.join("; ")),
        false => VerdictPart::Wait(waits.join("; "), until),
    }
}

/// Waits for `wait` after a change.
fn bounded_wait(change: &EndpointChange, wait: Duration, now: UnixNanos, whom: &str) -> VerdictPart {
    let end = after(change.seen, wait);
    let seconds = wait.as_secs_f64();
    if now >= end {
        return VerdictPart::Done(Bounded, format!("waited {seconds} s for {whom}"));
    }
    let waited = between(change.seen, now).as_secs_f64();
    VerdictPart::Wait(format!("waiting for {whom} ({waited:.1} of {seconds} s)"), Some(end))
}

/// Checks that the kube-proxy of every node has applied a change. Pods of a node that is not Ready may still send
/// traffic, so its kube-proxy counts too.
fn kube_proxies(
    change: &EndpointChange,
    nodes: &[NodeProxy],
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> VerdictPart {
    if nodes.is_empty() {
        return bounded_wait(change, wait_times.propagation, now, "the proxies, because no node is known");
    }
    let name = |(node, why): &(&NodeProxy, &str)| {
        let state = if node.not_ready_since.is_some() { "not Ready; " } else { "" };
        format!("{} ({state}{why})", node.name)
    };
    let (mut written, mut unknown, mut waiting, mut until) = (0, Vec::new(), Vec::new(), None);
    let mut shortest_wait: Option<Duration> = None;
    for node in nodes {
        let Some((why, end)) = limit_of(node, change, wait_times) else {
            written += 1;
            continue;
        };
        if now >= end {
            let wait = between(change.seen, end);
            shortest_wait = Some(shortest_wait.map_or(wait, |shortest| shortest.min(wait)));
            unknown.push((node, why));
        } else {
            until = until.max(Some(end));
            waiting.push((node, why));
        }
    }
    if !waiting.is_empty() {
        return VerdictPart::Wait(format!("waiting for kube-proxy of {}", join_first(&waiting, name)), until);
    }
    let mut words = format!("kube-proxy of {} has applied the change", count(written, "node"));
    let Some(wait) = shortest_wait else { return VerdictPart::Done(Proven, words) };
    let seconds = wait.as_secs_f64();
    words += &format!(", waited at least {seconds} s for that of {}", join_first(&unknown, name));
    VerdictPart::Done(Bounded, words)
}

/// Returns why the kube-proxy of `node` is not known to have applied a change, and until when to wait for it. `None` if
/// it has applied the change.
fn limit_of<'a>(
    node: &'a NodeProxy,
    change: &EndpointChange,
    wait_times: &WaitTimes,
) -> Option<(&'a str, UnixNanos)> {
    let shortest = after(change.seen, wait_times.propagation);
    let longest = after(change.seen, wait_times.propagation.max(STALE_PROXY_WAIT));
    match (&node.rules, node.not_ready_since) {
        (RulesState::Written, _) => None,
        (RulesState::Pending(why), _) => Some((why, after(change.seen, PENDING_PROXY_WAIT))),
        // A node that has been lost for long is not expected back, and its pods with it.
        (
            RulesState::Stale(why) | RulesState::Unresponsive(why) | RulesState::Unreadable(why),
            Some(since),
        ) => Some((why, after(since, STALE_PROXY_WAIT).clamp(shortest, longest))),
        (RulesState::Stale(why) | RulesState::Unresponsive(why), None) => Some((why, longest)),
        (RulesState::Unreadable(why), None) | (RulesState::Unconfirmed(why), _) => Some((why, shortest)),
    }
}
