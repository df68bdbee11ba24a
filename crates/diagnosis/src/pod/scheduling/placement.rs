//! Taints, affinity, spread and ports.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Taint};

use crate::cause::{Case, Cause};
use crate::words::count;

use super::clauses::Clause;
use super::closed_nodes::{is_cordoned, refusing_taint};
use super::unscheduled::Unscheduled;

impl Unscheduled<'_> {
    fn spec(&self) -> Option<&k8s_openapi::api::core::v1::PodSpec> {
        self.snapshot.pod.spec.as_ref()
    }

    pub(super) fn taints(&self, clause: &Clause<'_>) -> Cause {
        let tolerations = self.spec().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        // The taints of nodes that the pod does not select do not matter to it, and those that are cordoned are another cause.
        let refuses = |node: &&Node| !is_cordoned(node) && refusing_taint(node, tolerations).is_some();
        let refusing = self.snapshot.nodes.iter().filter(refuses);
        let of_selected = refusing.clone().any(|node| self.selects(node));
        for node in refusing.filter(|node| !of_selected || self.selects(node)) {
            let Some(taint) = refusing_taint(node, tolerations) else { continue };
            let name = node.metadata.name.as_deref().unwrap_or_default();
            found.entry(shown_taint(taint)).or_default().push(name);
        }
        let most = found.iter().max_by_key(|(_, nodes)| nodes.len());
        let (what, object, next) = match most {
            Some((taint, nodes)) if state_of(taint).is_some() => {
                let node = nodes.first().copied().unwrap_or_default();
                let state = state_of(taint).unwrap_or_default();
                (
                    format!("no node takes it: {state} {} (taint {taint})", named(nodes)),
                    format!("node {node}"),
                    format!("kubectl describe node {node}"),
                )
            }
            Some((taint, nodes)) => {
                let node = nodes.first().copied().unwrap_or_default();
                (
                    format!("does not tolerate the taint {taint} of {}", named(nodes)),
                    format!("node {node}"),
                    format!(
                        "add a toleration ({}), or: kubectl taint node {node} {taint}-",
                        self.commands.edit()
                    ),
                )
            }
            None => {
                let what = format!("does not tolerate the taints of {}", count(clause.nodes, "node"));
                (what, "nodes".to_owned(), "kubectl describe nodes".to_owned())
            }
        };
        let others = found.iter().map(|(taint, nodes)| format!("taint {taint}: {}", named(nodes)));
        Cause::new(clause.case, object, what).next(next).evidence(others)
    }

    pub(super) fn node_affinity(&self) -> Cause {
        let selector = self.spec().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
        let has = |key: &str, value: &str| {
            let of = |node: &Node| node.metadata.labels.as_ref()?.get(key).cloned();
            self.snapshot.nodes.iter().any(|node| of(node).as_deref() == Some(value))
        };
        let is_unread = self.snapshot.is_unread("nodes");
        let missing = selector.iter().find(|(key, value)| !is_unread && !has(key, value));
        let required = self
            .spec()
            .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref())
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
        let terms: Vec<String> = terms.iter().map(shown_term).collect();
        let (what, next) = if let Some((key, value)) = missing {
            let what = format!("no node has the label {key}={value} that its nodeSelector wants");
            (what, format!("kubectl get nodes -L {key}; then kubectl label node NODE {key}={value}"))
        } else if terms.is_empty() {
            let all: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let what = format!("no free node has all labels that its nodeSelector wants: {}", all.join(", "));
            (what, "kubectl get nodes --show-labels".to_owned())
        } else {
            let what = format!("no free node matches its required node affinity: {}", terms.join(" or "));
            (what, "kubectl get nodes --show-labels".to_owned())
        };
        let object = format!("pod {}", self.snapshot.pod_name());
        Cause::new(Case::NodeAffinity, object, what).next(next)
    }

    pub(super) fn other_pods(&self, clause: &Clause<'_>) -> Cause {
        let affinity = self.spec().and_then(|spec| spec.affinity.as_ref());
        let near = affinity.and_then(|affinity| {
            affinity.pod_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
        });
        let far = affinity.and_then(|affinity| {
            affinity.pod_anti_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
        });
        let shown = |terms: Option<&Vec<k8s_openapi::api::core::v1::PodAffinityTerm>>| {
            let terms = terms.into_iter().flatten().map(|term| {
                let selector = term.label_selector.as_ref().map(shown_selector).unwrap_or_default();
                format!("pods {selector} per {}", term.topology_key)
            });
            terms.collect::<Vec<_>>().join(", ")
        };
        let what = match clause.case {
            Case::PodAffinity => {
                format!("no node is beside pods that its required affinity wants: {}", shown(near))
            }
            Case::PodAntiAffinity if clause.text.contains("existing pods") => {
                "the required anti-affinity of pods that run already keeps it off the nodes".to_owned()
            }
            Case::PodAntiAffinity => {
                format!("its required anti-affinity forbids the nodes that have room: {}", shown(far))
            }
            _ => {
                let constraints = self.spec().and_then(|spec| spec.topology_spread_constraints.as_deref());
                let hard = constraints
                    .unwrap_or_default()
                    .iter()
                    .filter(|it| it.when_unsatisfiable == "DoNotSchedule");
                let hard: Vec<String> =
                    hard.map(|it| format!("maxSkew {} per {}", it.max_skew, it.topology_key)).collect();
                let label = if clause.text.contains("missing required label") {
                    "; nodes lack the label"
                } else {
                    ""
                };
                format!(
                    "its topology spread constraint forbids the nodes that have room: {}{label}",
                    hard.join(", ")
                )
            }
        };
        let object = format!("pod {}", self.snapshot.pod_name());
        Cause::new(clause.case, object, what)
            .next(format!("{}; add a node, or relax the rule", self.commands.edit()))
    }

    pub(super) fn host_ports(&self, clause: &Clause<'_>) -> Cause {
        let containers = self.spec().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
        let ports: BTreeSet<String> =
            ports.filter_map(|port| port.host_port.map(|number| number.to_string())).collect();
        let ports = ports.into_iter().collect::<Vec<_>>().join(", ");
        let what = format!("another pod uses its host port {ports} on {}", count(clause.nodes, "node"));
        let object = format!("pod {}", self.snapshot.pod_name());
        Cause::new(Case::HostPort, object, what)
            .next(format!("{}; remove hostPort, or add a node", self.commands.edit()))
    }
}

/// Returns what a taint says that the control plane sets, and removes again when the state of the node has changed.
fn state_of(taint: &str) -> Option<&'static str> {
    let (state, _) = taint.strip_prefix("node.kubernetes.io/")?.split_once(':')?;
    Some(match state {
        "memory-pressure" => "memory is low on",
        "disk-pressure" => "disk space is low on",
        "pid-pressure" => "process IDs are low on",
        "network-unavailable" => "the network is not set up on",
        "not-ready" => "the kubelet is not Ready on",
        "unreachable" => "no kubelet reports from",
        _ => return None,
    })
}

fn shown_taint(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        _ => format!("{}:{}", taint.key, taint.effect),
    }
}

fn shown_term(term: &NodeSelectorTerm) -> String {
    let expressions = term.match_expressions.iter().chain(&term.match_fields).flatten();
    let shown = expressions.map(|it| {
        let values = it.values.as_deref().unwrap_or_default().join("|");
        format!("{} {} {values}", it.key, it.operator).trim_end().to_owned()
    });
    shown.collect::<Vec<_>>().join(" and ")
}

fn shown_selector(selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|it| {
        let values = it.values.as_deref().unwrap_or_default().join("|");
        format!("{} {} {values}", it.key, it.operator).trim_end().to_owned()
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

/// `node a`, or `3 nodes (a, b, c)`.
fn named(nodes: &[&str]) -> String {
    match nodes {
        [one] => format!("node {one}"),
        many => {
            let dots = if many.len() > 3 { ", ..." } else { "" };
            let first = many.iter().take(3).copied().collect::<Vec<_>>().join(", ");
            format!("{} nodes ({first}{dots})", many.len())
        }
    }
}
