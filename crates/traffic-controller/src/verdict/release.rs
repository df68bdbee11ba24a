//! RELEASE: forget the pod.

use podward_core::hooks::EvidenceLevel::{Assumed, Proven};

use super::Verdict;
use crate::world::Facts;

/// Whether the Services have forgotten a pod that is gone, dying, or `opted_out`.
///
/// The slices of a terminating pod are not ready whatever its node does, so this waits for no node. That the proxies follow is
/// assumed: there is nobody left to hold back.
pub(crate) fn release(facts: &Facts, opted_out: bool) -> Verdict {
    if opted_out {
        return Verdict::done(Assumed, "the pod has opted out; its Services go on with it by themselves");
    }
    let shown = facts.services.iter();
    let shown =
        shown.filter(|service| service.exists && service.has_selector && !service.publishes_not_ready);
    for service in shown {
        if let Some(slice) = &service.ready {
            return Verdict::pending(
                format!("EndpointSlice {slice} of Service {} still shows the pod ready", service.key),
                None,
            );
        }
    }
    if facts.services.iter().all(|service| service.slices == 0) {
        return Verdict::done(Proven, "no EndpointSlice names it");
    }
    let others = facts
        .services
        .iter()
        .filter(|service| service.ready.is_some())
        .map(|service| service.key.to_string());
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return Verdict::done(Assumed, "no EndpointSlice shows it ready; the proxies follow");
    }
    let why = "which show pods whether they are ready or not, or whose slices somebody else writes";
    Verdict::done(Assumed, format!("not ready but for {}, {why}", super::names(&others)))
}
