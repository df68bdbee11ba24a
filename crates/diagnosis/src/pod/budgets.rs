//! PodDisruptionBudgets.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use podward_api::compile_selector;

use crate::cause::{Case, Cause};
use crate::snapshot::Snapshot;

/// Returns whether a budget is for pods with these labels.
pub(crate) fn selects(budget: &PodDisruptionBudget, labels: &BTreeMap<String, String>) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|it| compile_selector(it).is_ok_and(|it| it.matches(labels)))
}

/// Returns the cause if budgets do not allow an eviction of the pod now.
pub(super) fn cause(snapshot: &Snapshot) -> Option<Cause> {
    let empty = BTreeMap::new();
    let labels = snapshot.pod.metadata.labels.as_ref().unwrap_or(&empty);
    let of_pod: Vec<&PodDisruptionBudget> =
        snapshot.budgets.iter().filter(|budget| selects(budget, labels)).collect();
    let namespace = snapshot.pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = |budget: &PodDisruptionBudget| budget.metadata.name.clone().unwrap_or_default();
    if of_pod.len() > 1 {
        let names = of_pod.iter().map(|budget| name(budget)).collect::<Vec<_>>().join(", ");
        let what = format!(
            "more than one PodDisruptionBudget selects it ({names}), so the API server rejects evictions"
        );
        let next = format!("kubectl -n {namespace} get pdb; leave one of them");
        return Some(
            Cause::new(Case::SeveralBudgets, format!("PodDisruptionBudget {namespace}/{names}"), what)
                .next(next),
        );
    }
    let budget = of_pod.first()?;
    let status = budget.status.as_ref()?;
    if status.disruptions_allowed > 0 {
        return None;
    }
    let name = name(budget);
    let what = format!(
        "PodDisruptionBudget {name} allows no eviction: {} of {} pods are healthy, and {} have to be",
        status.current_healthy, status.expected_pods, status.desired_healthy
    );
    let next = format!("kubectl -n {namespace} describe pdb {name}");
    Some(Cause::new(Case::Budget, format!("PodDisruptionBudget {namespace}/{name}"), what).next(next))
}
