//! Parts that answers share: what the slices show, and whether the proxies have taken it in.

use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Assumed, Bounded, Proven};

use super::{Part, Waits, count, names};
use crate::clock::{after, between};
use crate::proxy::TakenIn;
use crate::world::{Carrier, Change, Facts, ServiceFacts, ServiceKind};

/// A kube-proxy that answers but has heard of nothing since a change may be cut off from the API server, and one that hangs or has
/// ended leads traffic by the rules that it wrote before. So they are waited for longer than one that never could be read; but not for
/// ever, as the signs are indirect ones.
const UNHEARD: Duration = Duration::from_secs(30);

/// What is known of the nodes' proxies about a change.
#[derive(Clone, Debug)]
pub(crate) enum Nodes {
    /// Nothing: no way to read them is configured.
    Unread,
    /// Of each node.
    Read(Vec<OneNode>),
}

/// What is known of a node's proxy about a change.
#[derive(Clone, Debug)]
pub(crate) struct OneNode {
    /// The node's name.
    pub(crate) name: Arc<str>,
    /// Whether the node is Ready.
    pub(crate) ready: bool,
    /// Whether the change has reached its rules.
    pub(crate) has: TakenIn,
}

/// Whether all slices show the pod out of service.
pub(super) fn out_of_slices(facts: &Facts) -> Part {
    let mut level = Proven;
    let mut words = Vec::new();
    for service in &facts.services {
        let name = &service.key;
        if service.kind == ServiceKind::ExternalName {
            continue;
        }
        if service.publishes_not_ready {
            level = level.max(Assumed);
            words.push(format!(
                "Service {name} publishes addresses that are not ready: it sends the pod traffic whatever its readiness gate says"
            ));
            continue;
        }
        let shown = service.ready.as_ref().or(service.serving.as_ref());
        if shown.is_some() && !service.exists {
            words.push(format!("Service {name}, in whose slices it is, is gone"));
            continue;
        }
        if let Some(slice) = shown {
            let shown = if service.ready.is_some() { "ready" } else { "serving" };
            let hint = if service.has_selector {
                "; if that lasts, has the pod the readiness gate, and does the kubelet of its node answer?"
            } else {
                "; the Service has no selector, so whoever writes its slices has to take the pod out"
            };
            return Part::Wait(
                format!("EndpointSlice {slice} of Service {name} still shows the pod {shown}{hint}"),
                None,
            );
        }
        words.push(match service.slices {
            0 => format!("no slice of Service {name} names it"),
            slices => format!("not ready in {} of Service {name}", count(slices, "slice")),
        });
    }
    if words.is_empty() {
        words.push("no Service selects it".to_owned());
    }
    Part::Done(level, names(&words))
}

/// Who leads traffic to a pod, or did until a moment ago, with the last change that each has to take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carriers([Option<Change>; Carrier::COUNT]);

impl Carriers {
    /// Those of `services`.
    pub(super) fn of(facts: &Facts, services: &[&ServiceFacts]) -> Self {
        let last = facts.changed.iter().flatten().max_by_key(|change| change.seen).copied();
        let mut carriers = [None; Carrier::COUNT];
        for service in services {
            let carrier = match service.kind {
                ServiceKind::Proxied => Carrier::KubeProxy,
                ServiceKind::Headless => Carrier::Dns,
                ServiceKind::OtherProxy => Carrier::Other,
                ServiceKind::ExternalName => continue,
            };
            carriers[carrier.index()] = last;
        }
        Self(carriers)
    }

    /// And those of the Services that the pod has left.
    pub(super) fn and_former(mut self, facts: &Facts) -> Self {
        for (ours, left) in self.0.iter_mut().zip(facts.left) {
            *ours = ours.or(left);
        }
        self
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn change(&self, carrier: Carrier) -> Option<&Change> {
        self.0[carrier.index()].as_ref()
    }
}

/// Whether those who lead traffic to the pod have taken in the last change.
pub(super) fn taken_in(carriers: &Carriers, nodes: &Nodes, waits: &Waits, now: UnixNanos) -> Part {
    if carriers.is_empty() {
        return Part::Done(Proven, "no slice has named it".to_owned());
    }
    let mut parts = Vec::new();
    if let Some(changed) = carriers.change(Carrier::KubeProxy) {
        parts.push(match nodes {
            Nodes::Unread => bounded(changed, waits.propagation, now, "the proxies, which can't be read"),
            Nodes::Read(nodes) => read(changed, nodes, waits, now),
        });
    }
    if let Some(changed) = carriers.change(Carrier::Other) {
        parts.push(bounded(changed, waits.propagation, now, "a proxy that is not kube-proxy"));
    }
    if let Some(changed) = carriers.change(Carrier::Dns) {
        parts.push(bounded(
            changed,
            waits.dns_ttl,
            now,
            "clients to forget the DNS answer of a headless Service",
        ));
    }
    join(parts)
}

/// All parts together: the weakest evidence, or the first wait with the time of the last.
fn join(parts: Vec<Part>) -> Part {
    let (mut level, mut words, mut waits, mut until) = (Proven, Vec::new(), Vec::new(), None);
    for part in parts {
        match part {
            Part::Done(its_level, its_words) => {
                level = level.max(its_level);
                words.push(its_words);
            }
            Part::Wait(its_words, its_until) => {
                waits.push(its_words);
                until = until.max(its_until);
            }
        }
    }
    match waits.is_empty() {
        true => Part::Done(level, words.join("; ")),
        false => Part::Wait(waits.join("; "), until),
    }
}

fn bounded(changed: &Change, wait: Duration, now: UnixNanos, whom: &str) -> Part {
    let end = after(changed.seen, wait);
    let seconds = wait.as_secs_f64();
    if now >= end {
        return Part::Done(Bounded, format!("{seconds} s for {whom}"));
    }
    Part::Wait(
        format!("waits for {whom} ({:.1} of {seconds} s)", between(changed.seen, now).as_secs_f64()),
        Some(end),
    )
}

fn read(changed: &Change, nodes: &[OneNode], waits: &Waits, now: UnixNanos) -> Part {
    let (mut have, mut left_out, mut unseen, mut waiting, mut until) =
        (0, Vec::new(), Vec::new(), Vec::new(), None);
    let mut waited: Option<Duration> = None;
    for node in nodes {
        if !node.ready {
            left_out.push(node.name.to_string());
            continue;
        }
        let (why, patience) = match &node.has {
            TakenIn::Yes => {
                have += 1;
                continue;
            }
            TakenIn::NotYet(why) => {
                waiting.push(format!("{} ({why})", node.name));
                continue;
            }
            TakenIn::Unheard(why) | TakenIn::Silent(why) => (why, waits.propagation.max(UNHEARD)),
            TakenIn::Unreadable(why) => (why, waits.propagation),
        };
        let end = after(changed.seen, patience);
        if now >= end {
            waited = Some(waited.map_or(patience, |least| least.min(patience)));
            unseen.push(format!("{} ({why})", node.name));
        } else {
            until = until.max(Some(end));
            waiting.push(format!("{} ({why})", node.name));
        }
    }
    if !waiting.is_empty() {
        return Part::Wait(format!("waits for kube-proxy of {}", names(&waiting)), until);
    }
    let mut words = format!("kube-proxy of {} has it", count(have, "node"));
    let mut level = Proven;
    if let Some(waited) = waited {
        level = Bounded;
        let seconds = waited.as_secs_f64();
        words += &format!(", {seconds} s or more were waited for that of {}", names(&unseen));
    }
    if !left_out.is_empty() {
        words += &format!(", left out as not Ready: {}", names(&left_out));
    }
    if have + unseen.len() == 0 {
        // Nobody can be vouched for.
        return match bounded(changed, waits.propagation, now, "the proxies, as no node is Ready") {
            Part::Done(level, bounded) => Part::Done(level, format!("{bounded}; {words}")),
            wait => wait,
        };
    }
    Part::Done(level, words)
}
