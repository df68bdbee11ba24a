//! What to look at before the pods of a workload opt in.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use serde::Serialize;

use crate::pod::selects;
use crate::rollout::amount;

/// A grace period in which many servers cannot end their requests, in seconds.
const SHORT_GRACE: i64 = 10;
/// The grace period of pods that set none, in seconds.
const USUAL_GRACE: i64 = 30;
/// Shells that do not pass signals on.
const SHELLS: [&str; 4] = ["sh", "bash", "ash", "dash"];

/// How much an advice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdviceLevel {
    /// Good to know.
    Note,
    /// Requests can be lost, or drains take longer than they have to.
    Warning,
    /// It does not work.
    Problem,
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// How much it matters.
    pub level: AdviceLevel,
    /// What was found.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// A workload, and the objects that select its pods.
#[derive(Clone, Debug, Default)]
pub struct OptInFacts {
    /// The template of its pods.
    pub template: PodTemplateSpec,
    /// The number of pods. `None` for a DaemonSet.
    pub replicas: Option<i32>,
    /// Whether all pods are deleted before new ones are created (strategy Recreate).
    pub recreates: bool,
    /// The Services of the namespace.
    pub services: Vec<Service>,
    /// The PodDisruptionBudgets of the namespace.
    pub budgets: Vec<PodDisruptionBudget>,
}

/// Returns what to look at, the most important first.
#[must_use]
pub fn advice(facts: &OptInFacts) -> Vec<Advice> {
    let mut all = Vec::new();
    of_workload(&mut all, facts);
    of_containers(&mut all, facts);
    of_services(&mut all, facts);
    of_budgets(&mut all, facts);
    all.sort_by_key(|advice| std::cmp::Reverse(advice.level));
    all
}

fn add(all: &mut Vec<Advice>, level: AdviceLevel, what: impl Into<String>, next: impl Into<String>) {
    all.push(Advice { level, what: what.into(), next: next.into() });
}

fn labels(facts: &OptInFacts) -> BTreeMap<String, String> {
    facts.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default()
}

fn of_workload(all: &mut Vec<Advice>, facts: &OptInFacts) {
    match labels(facts).get(CONTROL_LABEL).map(String::as_str) {
        Some(CONTROL_VALUE) => {
            add(all, AdviceLevel::Note, "its pods have opted in already", "kubectl podward get");
        }
        Some(other) => add(
            all,
            AdviceLevel::Warning,
            format!(
                "the label {CONTROL_LABEL} of its pods is {other}, which keeps them out, also in a namespace that opts in"
            ),
            format!("set {CONTROL_LABEL}: \"{CONTROL_VALUE}\" in the pod template"),
        ),
        None => {}
    }
    if facts.replicas == Some(1) {
        add(
            all,
            AdviceLevel::Warning,
            "it has one replica: while the pod is operated on, nobody serves",
            "set replicas to 2 or more",
        );
    }
    if facts.recreates {
        add(
            all,
            AdviceLevel::Problem,
            "its strategy is Recreate: a rollout takes all pods out of service before a new one serves",
            "set strategy.type: RollingUpdate",
        );
    }
}

fn of_containers(all: &mut Vec<Advice>, facts: &OptInFacts) {
    let Some(spec) = &facts.template.spec else { return };
    let grace = spec.termination_grace_period_seconds.unwrap_or(USUAL_GRACE);
    if grace < SHORT_GRACE {
        add(
            all,
            AdviceLevel::Warning,
            format!("terminationGracePeriodSeconds is {grace}: requests that take longer are cut off"),
            "set it to the duration of the longest request, and some seconds",
        );
    }
    for container in &spec.containers {
        of_container(all, container, grace);
    }
}

fn of_container(all: &mut Vec<Advice>, container: &Container, grace: i64) {
    let name = &container.name;
    if container.readiness_probe.is_none() && container.ports.as_ref().is_some_and(|ports| !ports.is_empty())
    {
        add(
            all,
            AdviceLevel::Problem,
            format!("container {name} has no readiness probe: it gets requests before it can answer them"),
            "add readinessProbe",
        );
    }
    if container.liveness_probe.is_some() && container.liveness_probe == container.readiness_probe {
        add(
            all,
            AdviceLevel::Warning,
            format!(
                "the liveness probe of container {name} is its readiness probe: a pod that is only busy is restarted undrained"
            ),
            "give the liveness probe an endpoint of its own, or more failures",
        );
    }
    let pre_stop = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    if let Some(hook) = pre_stop {
        let sleep = hook
            .sleep
            .as_ref()
            .map(|sleep| sleep.seconds)
            .or_else(|| sleep_of(hook.exec.as_ref()?.command.as_deref()?));
        match sleep {
            Some(seconds) if seconds >= grace => add(
                all,
                AdviceLevel::Problem,
                format!(
                    "the preStop hook of container {name} sleeps for {seconds} s, all of its grace period of {grace} s"
                ),
                "shorten the sleep, or prolong terminationGracePeriodSeconds",
            ),
            Some(seconds) => add(
                all,
                AdviceLevel::Note,
                format!(
                    "the preStop hook of container {name} sleeps for {seconds} s: with Podward, the pod is drained before that"
                ),
                "remove it after the pods have opted in, unless pods are also killed in other ways, or a load balancer \
                 uses them until they terminate (AWS with IP targets, GKE)",
            ),
            None => {}
        }
    }
    let command = container.command.iter().chain(&container.args).flatten().map(String::as_str);
    let words: Vec<&str> = command.collect();
    let program = words.first().and_then(|first| first.rsplit('/').next()).unwrap_or_default();
    let is_script = words.get(1) == Some(&"-c")
        && words.get(2).is_some_and(|script| !script.trim_start().starts_with("exec "));
    if SHELLS.contains(&program) && is_script {
        add(
            all,
            AdviceLevel::Warning,
            format!(
                "container {name} is started by a shell, which may not pass SIGTERM on: the server is then killed after {grace} s"
            ),
            "begin the script's last command with exec",
        );
    }
}

/// Returns the seconds of `sleep N`, also in a shell.
fn sleep_of(command: &[String]) -> Option<i64> {
    let text = command.join(" ");
    let (_, rest) = text.split_once("sleep ")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn of_services(all: &mut Vec<Advice>, facts: &OptInFacts) {
    let labels = labels(facts);
    let selects_pods = |service: &&Service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let services: Vec<&Service> = facts.services.iter().filter(selects_pods).collect();
    if services.is_empty() {
        add(
            all,
            AdviceLevel::Note,
            "no Service of the namespace selects its pods: Podward drains them only from hooks and registries",
            "kubectl get services",
        );
    }
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let Some(spec) = &service.spec else { continue };
        if spec.publish_not_ready_addresses == Some(true) {
            add(
                all,
                AdviceLevel::Problem,
                format!(
                    "Service {name} publishes addresses that are not ready, so it cannot take a pod out of service"
                ),
                format!("set publishNotReadyAddresses: false in Service {name}"),
            );
        }
        if spec.cluster_ip.as_deref() == Some("None") {
            add(
                all,
                AdviceLevel::Note,
                format!(
                    "Service {name} is headless: clients use what they have resolved for a while, and Podward waits for that"
                ),
                "traffic-controller.waits.dnsTtlSeconds is the time for which clients use a DNS answer",
            );
        }
    }
}

fn of_budgets(all: &mut Vec<Advice>, facts: &OptInFacts) {
    let labels = labels(facts);
    let budgets: Vec<&PodDisruptionBudget> =
        facts.budgets.iter().filter(|budget| selects(budget, &labels)).collect();
    let names: Vec<&str> = budgets.iter().filter_map(|budget| budget.metadata.name.as_deref()).collect();
    if names.len() > 1 {
        add(
            all,
            AdviceLevel::Problem,
            format!(
                "more than one PodDisruptionBudget selects its pods ({}): the API server rejects their evictions",
                names.join(", ")
            ),
            "leave one of them",
        );
    }
    if names.is_empty() && facts.replicas.is_some_and(|replicas| replicas > 1) {
        add(
            all,
            AdviceLevel::Warning,
            "no PodDisruptionBudget selects its pods: a drain of nodes may take all of them out of service together",
            "add a PodDisruptionBudget with maxUnavailable",
        );
    }
    for budget in budgets {
        let name = budget.metadata.name.as_deref().unwrap_or_default();
        if facts.replicas.is_some_and(|replicas| allows_nothing(budget, replicas)) {
            add(
                all,
                AdviceLevel::Problem,
                format!(
                    "PodDisruptionBudget {name} never allows an eviction: nodes with these pods cannot be drained"
                ),
                format!("set maxUnavailable of PodDisruptionBudget {name} to 1 or more"),
            );
        }
    }
}

/// Percentages are rounded up, as Kubernetes does.
fn allows_nothing(budget: &PodDisruptionBudget, replicas: i32) -> bool {
    let Some(spec) = &budget.spec else { return false };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => amount(most, replicas.max(1), true) == 0,
        (None, Some(least)) => replicas > 0 && amount(least, replicas, true) >= replicas,
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests;
