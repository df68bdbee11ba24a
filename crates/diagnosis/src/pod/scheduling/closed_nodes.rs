//! Nodes that are cordoned, or tainted.

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

/// What closes the nodes that a pod selects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClosedNodes {
    pub(super) by_cordon: bool,
    pub(super) by_taint: bool,
}

/// A node that is cordoned has a taint as well. The scheduler looks at the cordon first.
pub(super) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

/// Returns a taint of the node that keeps a pod with these tolerations off it.
pub(super) fn refusing_taint<'n>(node: &'n Node, tolerations: &[Toleration]) -> Option<&'n Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_tolerated = |taint: &Taint| tolerations.iter().any(|it| tolerates(it, taint));
    taints.iter().find(|taint| taint.effect != "PreferNoSchedule" && !is_tolerated(taint))
}

/// Returns whether a toleration covers a taint, as Kubernetes decides.
pub(in crate::pod) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    if !empty(&toleration.effect) && toleration.effect.as_deref() != Some(taint.effect.as_str()) {
        return false;
    }
    if !empty(&toleration.key) && toleration.key.as_deref() != Some(taint.key.as_str()) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") if !empty(&toleration.key) => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}
