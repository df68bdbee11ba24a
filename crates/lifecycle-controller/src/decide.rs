//! The decision about one pod: a pure function of its observation.

use std::collections::BTreeMap;
use std::time::Duration;

use podward_core::busy::{BusyChecks, BusyClaim, BusyLimits, BusyOverrun};
use podward_core::keys::{AVAILABLE_CONDITIONS, HISTORY, POD_DELETION_COST, SERVICE_AVAILABLE, Stage};
use podward_core::{
    ConditionStatus, Explanation, LabelChanges, Operation, Operations, PodHooks, PodPlan, PodView, plan,
    without_consumers,
};
use podward_kube_util::{CachedPod, deletion_cost_changes, now};

use crate::gone_services::GoneService;
use crate::observation::Observation;

/// A deadline is checked this much after it has passed. A check before the deadline would have no effect.
const DEADLINE_MARGIN: Duration = Duration::from_millis(20);

/// The decision about one pod.
pub(crate) struct Decision {
    /// All changes, including those for the deletion of the pod.
    pub(crate) plan: PodPlan,
    /// What the pod waits for after the changes.
    pub(crate) explanation: Explanation,
    /// The operations that proceed although the pod is busy.
    pub(crate) overruns: Vec<BusyOverrun>,
    /// The ends of the waits for the busy pod, which are written with the condition.
    pub(crate) busy_limits: BusyLimits,
    /// The Services that are gone for good, whose finalizers are removed.
    pub(crate) released: Vec<GoneService>,
}

impl Decision {
    /// Returns the time until the next deadline.
    pub(crate) fn wake(&self) -> Option<Duration> {
        let left = self.plan.wake?.0.saturating_sub(now().0).max(0);
        Some(Duration::from_nanos(left.unsigned_abs()) + DEADLINE_MARGIN)
    }
}

/// Decides about the observed pod.
pub(crate) fn decide(observation: &Observation<'_>) -> Decision {
    let Observation { deletion, rules, now, .. } = observation;
    let effective = observation.effective();
    let mut labels = effective.labels.clone();
    deletion.changes.labels.apply(&mut labels);
    // A released finalizer counts as removed, so that its removal and what follows from it are one write.
    let (released, gone): (Vec<_>, Vec<_>) =
        observation.gone_services.iter().cloned().partition(|service| service.is_released);
    let is_left = |finalizer: &&String| !released.iter().any(|service| service.finalizer == **finalizer);
    let finalizers: Vec<String> = effective.finalizers.iter().filter(is_left).cloned().collect();
    let view = PodView { labels: &labels, finalizers: &finalizers, ..effective };

    let busy = BusyChecks::new(&view, observation.max_busy, *now, rules);
    let checks = deletion.checks(&busy);
    let answers = &*observation.answers;
    let consumers = PodHooks { hooks: &observation.hooks, known: &observation.known, answers };
    let mut plan = plan(&view, &consumers, &checks, *now);
    let mut explanation = plan.explain(&view, &checks);
    for service in gone {
        explanation.message.push_str(". ");
        explanation.message.push_str(&service.sentence(&observation.pod.key()));
    }
    plan.finalizers.remove.extend(released.iter().map(|service| service.finalizer.clone()));
    let overruns = busy.record(&view, &mut plan);
    let busy_limits = busy.limits();
    plan.wake = plan.wake.into_iter().chain(busy.wake()).min();

    let mut after = labels.clone();
    plan.labels.apply(&mut after);
    plan.labels = LabelChanges::between(effective.labels, &after);
    rules.renew(&mut plan.labels, *now);
    let mut annotations: BTreeMap<_, _> = deletion.changes.annotations.clone();
    annotations.extend(plan.annotations);
    plan.annotations = annotations.into_iter().collect();
    if !view.terminating {
        update_deletion_cost(observation.pod, &mut plan);
    }
    remove_expectations(&view, &observation.dead_services, &mut plan);
    let history = observation.pod.history_with(&plan.labels, None, *now);
    plan.annotations.extend(history.map(|text| (HISTORY, Some(text))));
    Decision { plan, explanation, overruns, busy_limits, released }
}

/// Adds the change of the deletion cost of `pod` to `plan`, unless a deletion request changes it there.
fn update_deletion_cost(pod: &CachedPod, plan: &mut PodPlan) {
    let work = BusyClaim::of(&pod.view()).at(plan.now);
    let changes = deletion_cost_changes(pod, work.is_some(), plan.now);
    // A raised cost is lowered when the announced work ends, unless the application ends it sooner.
    let is_raised = pod.cost(None).idle.is_some() || !changes.is_empty();
    let ends = work.filter(|_| is_raised).map(|work| work.until);
    plan.wake = plan.wake.into_iter().chain(ends).min();
    if !plan.annotations.iter().any(|(key, _)| *key == POD_DELETION_COST) {
        plan.annotations.extend(changes);
    }
}

/// Removes `dead` consumers from the expected finalizers of the pod within `plan`.
fn remove_expectations(pod: &PodView<'_>, dead: &[String], plan: &mut PodPlan) {
    if dead.is_empty() {
        return;
    }
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    let planned = plan.annotations.iter().position(|(key, _)| *key == AVAILABLE_CONDITIONS);
    let text = match planned {
        Some(place) => plan.annotations.swap_remove(place).1,
        None => pod.available_conditions.map(ToOwned::to_owned),
    };
    // The text was parsed to find the Services, so parsing cannot fail here.
    let left = text.as_deref().and_then(|text| without_consumers(text, &dead).ok().flatten());
    if planned.is_some() || left.is_some() {
        plan.annotations.push((AVAILABLE_CONDITIONS, left.or(text)));
    }
}

/// Returns whether the write of `plan` takes the pod out of service: an operation begins to prepare it. The write that
/// turns the gate off later, when hooks before the gate have drained the pod, does not. Nor does a write to a pod that
/// was not available and whose gate is off.
pub(crate) fn leaves_service(stored: &PodView<'_>, plan: &PodPlan) -> bool {
    let serves = stored.labels.contains_key(SERVICE_AVAILABLE) || stored.gate != Some(ConditionStatus::False);
    if !serves || is_out(stored.labels) {
        return false;
    }
    let mut after = stored.labels.clone();
    plan.labels.apply(&mut after);
    is_out(&after)
}

/// Returns whether an operation takes a pod with `labels` out of service, or keeps it out.
fn is_out(labels: &BTreeMap<String, String>) -> bool {
    let is_out = |operation: &Operation<'_>| operation.has_any(&[Stage::Preparing, Stage::Operate]);
    Operations::parse(labels).iter().any(|(_, operation)| is_out(operation))
}

#[cfg(test)]
mod tests;
