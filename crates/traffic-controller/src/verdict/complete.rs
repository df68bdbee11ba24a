//! COMPLETE: take the pod in.

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::Proven;

use super::parts::{Carriers, Nodes, taken_in};
use super::{Part, Verdict, Waits, names};
use crate::world::{Facts, ServiceFacts, ServiceKind};

/// Whether all Services that select the pod lead traffic to it.
pub(crate) fn complete(facts: &Facts, nodes: &Nodes, waits: &Waits, now: UnixNanos) -> Verdict {
    let selecting: Vec<&ServiceFacts> = facts.services.iter().filter(|service| service.selects).collect();
    if selecting.is_empty() {
        return Verdict::done(Proven, "no Service selects it");
    }
    if let Some(service) = selecting.iter().find(|service| service.ready.is_none()) {
        let shown = if service.slices == 0 { "names the pod yet" } else { "shows the pod ready yet" };
        return Verdict::pending(format!("no EndpointSlice of Service {} {shown}", service.key), None);
    }
    let ready: Vec<String> = selecting.iter().map(|service| service.key.to_string()).collect();
    let ready = format!("ready in the slices of {}", names(&ready));
    // Clients of a headless Service find it when they ask next; there is nothing to wait for.
    let proxied: Vec<&ServiceFacts> =
        selecting.into_iter().filter(|service| service.kind != ServiceKind::Headless).collect();
    if proxied.is_empty() {
        return Verdict::done(Proven, ready);
    }
    match taken_in(&Carriers::of(facts, &proxied), nodes, waits, now) {
        Part::Done(level, words) => Verdict::done(level, format!("{ready}; {words}")),
        Part::Wait(words, until) => Verdict::pending(format!("{ready}; {words}"), until),
    }
}
