//! Resources that no node has free.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::cause::{Case, Cause};
use crate::quantity::{amount, thousandths};

use super::clauses::Clause;
use super::unscheduled::Unscheduled;
use crate::pod_view::is_finished;

impl<'s> Unscheduled<'s> {
    pub(super) fn resource(&self, clause: &Clause<'_>) -> Cause {
        let resource = match clause.case {
            Case::Cpu => "cpu",
            Case::Memory => "memory",
            Case::PodsPerNode => "pods",
            _ => clause.text.strip_prefix("Insufficient ").unwrap_or(clause.text),
        };
        let wanted = if resource == "pods" { 1_000.0 } else { requested(&self.snapshot.pod, resource) };
        let nodes: Vec<&'s Node> = self.candidates();
        let largest = nodes.iter().map(|node| allocatable(node, resource)).fold(0.0, f64::max);
        let free = |node: &'s Node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let pods = self.snapshot.pods_of_nodes.get(name)?;
            let used: f64 = pods
                .iter()
                .filter(|pod| !is_finished(pod))
                .map(|pod| if resource == "pods" { 1_000.0 } else { requested(pod, resource) })
                .sum();
            Some((name, allocatable(node, resource) - used))
        };
        let most = nodes.iter().copied().filter_map(free).max_by(|(_, one), (_, other)| one.total_cmp(other));
        let has = |what: f64| amount(resource, what.max(0.0));
        let (what, next) = if nodes.is_empty() {
            (
                format!("no node has the {resource} that it requests ({})", has(wanted)),
                self.commands.describe(),
            )
        } else if resource == "pods" {
            let what = format!(
                "every node that fits runs as many pods as it may (at most {} on a node)",
                has(largest)
            );
            (what, "kubectl get pods -A -o wide; add a node".to_owned())
        } else if wanted > largest {
            let unit = if matches!(resource, "cpu" | "memory") { "" } else { resource };
            let what = format!("requests {} {unit}, and the largest node has {}", has(wanted), has(largest));
            (what.replace("  ", " ").replace(" ,", ","), self.commands.edit())
        } else {
            let most = most.map(|(name, free)| format!("; node {name} has the most, {}", has(free)));
            let spec = self.snapshot.pod.spec.as_ref();
            let may_preempt = spec.is_none_or(|spec| spec.preemption_policy.as_deref() != Some("Never"));
            let has_priority = spec.and_then(|spec| spec.priority).is_some_and(|priority| priority > 0);
            let waits = match has_priority && !may_preempt {
                true => ", and it may not preempt pods of lower priority (preemptionPolicy: Never)",
                false => "",
            };
            let what = format!(
                "requests {}, and no node has that free{}{waits}",
                has(wanted),
                most.unwrap_or_default()
            );
            let name =
                if matches!(resource, "cpu" | "memory") { String::new() } else { format!(" of {resource}") };
            (
                what.replacen(", and", &format!("{name}, and"), 1),
                "kubectl describe nodes; add a node".to_owned(),
            )
        };
        let object = format!("pod {}", self.snapshot.pod_name());
        Cause::new(clause.case, object, what).next(next)
    }
}

fn allocatable(node: &Node, resource: &str) -> f64 {
    let of = node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get(resource));
    of.map(thousandths).unwrap_or_default()
}

fn of(requests: Option<&BTreeMap<String, Quantity>>, resource: &str) -> f64 {
    requests.and_then(|requests| requests.get(resource)).map(thousandths).unwrap_or_default()
}

fn requests(of_container: Option<&ResourceRequirements>, resource: &str) -> f64 {
    of_container.map(|resources| of(resources.requests.as_ref(), resource)).unwrap_or_default()
}

/// Returns what a pod requests: its containers and sidecars together, or one of its init containers if that is more, and
/// its overhead. Requests of the whole pod come first.
fn requested(pod: &Pod, resource: &str) -> f64 {
    let Some(spec) = &pod.spec else { return 0.0 };
    let overhead = of(spec.overhead.as_ref(), resource);
    let of_pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource));
    if let Some(of_pod) = of_pod {
        return thousandths(of_pod) + overhead;
    }
    let main: f64 =
        spec.containers.iter().map(|container| requests(container.resources.as_ref(), resource)).sum();
    let (mut sidecars, mut most) = (0.0, 0.0_f64);
    for container in spec.init_containers.iter().flatten() {
        let wanted = requests(container.resources.as_ref(), resource);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars += wanted;
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars + wanted);
        }
    }
    most.max(main + sidecars) + overhead
}
