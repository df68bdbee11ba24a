//! The nodes that a pod selects, whatever they have free.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm};

use super::closed_nodes::{ClosedNodes, is_cordoned, refusing_taint};
use super::unscheduled::Unscheduled;

impl<'s> Unscheduled<'s> {
    /// Returns the nodes that the pod selects and whose taints it tolerates; all nodes if there are none.
    pub(super) fn candidates(&self) -> Vec<&'s Node> {
        let nodes: &'s [Node] = &self.snapshot.nodes;
        let open: Vec<&Node> =
            nodes.iter().filter(|node| self.selects(node) && !self.is_closed(node)).collect();
        if open.is_empty() { nodes.iter().collect() } else { open }
    }

    /// Returns what closes the nodes that the pod selects, if each of them is cordoned or has a taint that it does not
    /// tolerate.
    pub(super) fn closed(&self) -> ClosedNodes {
        let selected: Vec<&Node> = self.snapshot.nodes.iter().filter(|node| self.selects(node)).collect();
        let are_closed = !selected.is_empty() && selected.iter().all(|node| self.is_closed(node));
        let cordoned = selected.iter().filter(|node| is_cordoned(node)).count();
        ClosedNodes {
            by_cordon: are_closed && cordoned > 0,
            by_taint: are_closed && cordoned < selected.len(),
        }
    }

    /// Returns whether the node is cordoned, or has a taint that the pod does not tolerate.
    fn is_closed(&self, node: &Node) -> bool {
        let spec = self.snapshot.pod.spec.as_ref();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        is_cordoned(node) || refusing_taint(node, tolerations).is_some()
    }

    /// Returns whether the pod selects the node by its labels.
    pub(super) fn selects(&self, node: &Node) -> bool {
        let Some(spec) = &self.snapshot.pod.spec else { return true };
        let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
        let mut selector = spec.node_selector.iter().flatten();
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        selector.all(|(key, value)| label(key) == Some(value.as_str()))
            && required.is_none_or(|it| it.node_selector_terms.iter().any(|term| matches(term, node)))
    }
}

/// Returns whether a node matches a term. A term without requirements matches no node.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let fields = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_deref()).flatten();
    let expressions = term.match_expressions.iter().flatten().map(|it| holds(it, labels(&it.key)));
    let all: Vec<bool> =
        expressions.chain(term.match_fields.iter().flatten().map(|it| holds(it, fields(&it.key)))).collect();
    !all.is_empty() && all.into_iter().all(|holds| holds)
}

fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_in = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let compare = |order: std::cmp::Ordering| {
        let (found, limit) =
            (found.and_then(|it| it.parse::<i64>().ok()), values.first().and_then(|it| it.parse().ok()));
        found.zip(limit).is_some_and(|(found, limit)| found.cmp(&limit) == order)
    };
    match requirement.operator.as_str() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare(std::cmp::Ordering::Greater),
        "Lt" => compare(std::cmp::Ordering::Less),
        _ => false,
    }
}
