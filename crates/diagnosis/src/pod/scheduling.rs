//! Pods without a node.

mod claims;
mod clauses;
mod closed_nodes;
mod placement;
mod resources;
mod selection;
mod unscheduled;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::events::shown;
use crate::snapshot::Snapshot;

use crate::pod_view::{condition, disruption};
use crate::words::span;
pub use claims::claim_names;
use clauses::{Clause, SchedulerMessage};
pub(super) use closed_nodes::tolerates;
use unscheduled::Unscheduled;

pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    let pod = &snapshot.pod;
    let commands = Commands(pod);
    let scheduled = condition(pod, "PodScheduled");
    let since = scheduled
        .and_then(|condition| condition.last_transition_time.as_ref())
        .or(pod.metadata.creation_timestamp.as_ref())
        .map(|time| time.0);
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
    if !gates.is_empty() {
        let names = gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>().join(", ");
        let what = format!("is not scheduled until the owner of scheduling gate {names} removes it");
        let cause = Cause::new(Case::SchedulingGate, format!("pod {}", snapshot.pod_name()), what);
        let next = commands.kubectl(&format!("get pod {} -o yaml --show-managed-fields", commands.name()));
        causes.push(cause.since(since).next(next));
        return;
    }
    if let Some(node) = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()) {
        causes.push(preemption(snapshot, node).since(since));
    }
    let text = scheduled.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    let event = snapshot.events.newest(&["FailedScheduling"]);
    let text = if text.is_empty() { event.map(crate::events::message).unwrap_or_default() } else { text };
    if text.is_empty() {
        let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        let scheduler = scheduler.unwrap_or("default-scheduler");
        let what = format!("no scheduler has looked at it yet (schedulerName: {scheduler})");
        let next = "kubectl -n kube-system get pods -l component=kube-scheduler";
        let object = format!("pod {}", snapshot.pod_name());
        causes.push(Cause::new(Case::NotScheduled, object, what).since(since).next(next));
        return;
    }
    let message = SchedulerMessage::parse(text);
    let unscheduled = Unscheduled { snapshot, commands, message };
    let mut found: BTreeMap<(u8, Reverse<usize>, usize), Cause> = BTreeMap::new();
    let closed = unscheduled.closed();
    for (at, clause) in unscheduled.message.clauses.iter().enumerate() {
        let found_cause = cause(&unscheduled, clause).since(since);
        let rest = (at == 0).then(|| event.map(shown).unwrap_or_else(|| text.to_owned()));
        found.insert((clause.rank(closed), Reverse(clause.nodes), at), found_cause.evidence(rest));
    }
    if found.is_empty() {
        let what = format!("cannot be scheduled: {}", crate::words::shortened(text, 300));
        let cause = Cause::new(Case::Unschedulable, format!("pod {}", snapshot.pod_name()), what);
        causes.push(cause.since(since).next(commands.describe()));
    }
    causes.extend(found.into_values());
}

/// The pod waits for the scheduler's victims on the node.
fn preemption(snapshot: &Snapshot, node: &str) -> Cause {
    let pods = snapshot.pods_of_nodes.get(node).map(Vec::as_slice).unwrap_or_default();
    let victims: Vec<&Pod> = pods.iter().filter(|pod| is_preempted(pod)).collect();
    let left = |pod: &Pod| -> Option<String> {
        let ends = pod.metadata.deletion_timestamp.as_ref()?.0;
        Some(format!(", killed in {}", span(ends.duration_since(snapshot.now).as_secs())))
    };
    let named = victims.iter().take(3).map(|pod| {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (part(&pod.metadata.namespace), part(&pod.metadata.name));
        format!("{namespace}/{name}{}", left(pod).unwrap_or_default())
    });
    let named = named.collect::<Vec<_>>().join("; ");
    let more = if victims.len() > 3 { format!(" and {} more", victims.len() - 3) } else { String::new() };
    let (whom, next) = match victims.first() {
        Some(first) => (format!(": {named}{more}"), Commands(first).describe()),
        None => (String::new(), format!("kubectl get pods -A --field-selector spec.nodeName={node}")),
    };
    let what = format!("waits on node {node} for pods of lower priority to end{whom}");
    Cause::new(Case::Preemption, format!("node {node}"), what).next(next)
}

fn is_preempted(pod: &Pod) -> bool {
    disruption(pod).is_some_and(|it| it.reason.as_deref() == Some("PreemptionByScheduler"))
}

/// Returns the cause that a reason of the scheduler stands for.
fn cause(pod: &Unscheduled<'_>, clause: &Clause<'_>) -> Cause {
    let name = || format!("pod {}", pod.snapshot.pod_name());
    match clause.case {
        Case::Cpu | Case::Memory | Case::PodsPerNode | Case::OtherResource => pod.resource(clause),
        Case::Taint => pod.taints(clause),
        Case::Cordoned => {
            let what = format!("no node takes it: {} cordoned", pod.of_nodes(clause));
            let next = "kubectl get nodes; kubectl uncordon NODE";
            Cause::new(clause.case, "nodes", what).next(next)
        }
        Case::NodeAffinity => pod.node_affinity(),
        Case::PodAffinity | Case::PodAntiAffinity | Case::TopologySpread => pod.other_pods(clause),
        Case::HostPort => pod.host_ports(clause),
        Case::Claim | Case::VolumeZone => pod.claims(clause),
        _ => {
            let what = format!("cannot be scheduled: {}", clause.text);
            Cause::new(Case::Unschedulable, name(), what).next(pod.commands.describe())
        }
    }
}

#[cfg(test)]
mod tests;
