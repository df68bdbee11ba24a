//! Events, metrics and logs.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use podward_api::CloneSet;
use podward_api::clone_set::{CloneSetCondition, CloneSetStatus};
use podward_core::cloneset::{OperationStep, PodStep, SetPod, SetSpec, State};

use crate::context::Context;
use crate::errors::SetError;
use crate::execute::Outcome;
use crate::failed_steps::{FailedSteps, FailureReport};
use crate::overdue::overdue;
use crate::pod::Pod;
use crate::spans;

fn about(set: &CloneSet) -> ObjectReference {
    set.object_ref(&())
}

/// Reports what is done with a set.
#[derive(Clone, Copy)]
pub(crate) struct Reports<'a> {
    pub(crate) context: &'a Context,
    pub(crate) set: &'a CloneSet,
    pub(crate) spec: &'a SetSpec,
    /// The name of the revision of the template.
    pub(crate) revision: &'a str,
}

impl Reports<'_> {
    /// Reports what came of a step.
    pub(crate) fn step(&self, step: &PodStep, outcome: &Result<Outcome, SetError>) {
        self.context.metrics.wrote(action(step), word(outcome), 1);
        if let Err(error) = outcome {
            tracing::debug!(%error, "a step of a pod");
        }
    }

    /// Reports that a pod has the state of the step, or is deleted. It leaves the hook for which it waited.
    pub(crate) fn moved(&self, pod: &Pod, seen: &SetPod, step: &PodStep) {
        let Self { context, set, spec, revision } = *self;
        let late = overdue(spec, seen);
        let without = late.as_ref().map_or_else(String::new, |wait| {
            context.metrics.proceeded(wait.hook);
            format!(", without the hook {}: its deadline has passed", wait.hook.as_str())
        });
        let now = Timestamp::now();
        let (set_uid, pod_uid) = (set.uid().unwrap_or_default(), pod.uid().unwrap_or_default());
        let since = context.moved(&set_uid, &pod_uid, step.state, now);
        let span = spans::of_state(set, (pod, seen), revision, since, step.state, late.as_ref(), now);
        span.into_iter().for_each(|span| context.spans.send(span));
        match step.state {
            Some(state) => {
                context.metrics.moved(state);
                let note = transition(set, seen, step, state) + &without;
                context.events.normal_about(pod.object_ref(&()), state.as_str(), note);
            }
            None => {
                let note = format!("deleted pod {}{without}", seen.name);
                context.events.normal_about(about(set), "SuccessfulDelete", note);
            }
        }
    }

    /// Reports the steps that failed: one event for each reason. A failure that lasts is reported at growing intervals.
    pub(crate) fn failed(&self, steps: &FailedSteps) {
        let Self { context, set, .. } = self;
        for report in steps.reports() {
            let FailureReport { reason, text, .. } = &report;
            let cloneset = set.name_any();
            tracing::warn!(reason, error = text, cloneset, "steps of pods failed; they are repeated");
            let is_due = context.remember(&set.uid().unwrap_or_default(), |memory| {
                memory.failed_steps.is_due(&report, Instant::now())
            });
            if is_due {
                context.events.warning_about(about(set), reason, text.clone());
            }
        }
    }

    /// Reports pods that are updated in place.
    pub(crate) fn updated(&self, count: usize) {
        let Self { context, set, revision, .. } = self;
        if count > 0 {
            let pods = counted(count);
            let note =
                format!("containers of {pods} are replaced; the revision of the template is {revision}");
            context.events.normal_about(about(set), "SuccessfulUpdatePodInPlace", note);
        }
    }

    /// Reports that fewer pods are created than are missing, if that was not so before.
    pub(crate) fn limited(&self, held: u32) {
        let Self { context, set, .. } = self;
        let before = context.remember(&set.uid().unwrap_or_default(), |memory| {
            std::mem::replace(&mut memory.creations_held, held)
        });
        if held > 0 && before == 0 {
            let note = format!(
                "{} wait to be created until others are available: scaleStrategy.maxUnavailable",
                counted(usize::try_from(held).unwrap_or(usize::MAX))
            );
            context.events.warning_about(about(set), "ScaleUpLimited", note);
        }
    }

    /// Reports pods that were created.
    pub(crate) fn created(&self, count: usize, error: Option<&SetError>) {
        let Self { context, set, revision, .. } = self;
        if count > 0 {
            context.metrics.wrote("create", "written", count);
            let note = format!("created {}; the revision of the template is {revision}", counted(count));
            context.events.normal_about(about(set), "SuccessfulCreate", note);
        }
        if let Some(error) = error.filter(|error| !error.is_in_ending_namespace()) {
            context.metrics.wrote("create", "failed", 1);
            tracing::warn!(%error, cloneset = set.name_any(), "a pod could not be created; it is tried again");
            context.events.warning_about(about(set), "FailedCreate", error.to_string());
        }
    }
}

/// Returns a number of pods, for people.
pub(crate) fn counted(pods: usize) -> String {
    format!("{pods} {}", if pods == 1 { "pod" } else { "pods" })
}

/// Returns what a transition means, for people.
fn transition(set: &CloneSet, seen: &SetPod, step: &PodStep, state: State) -> String {
    let from = seen.state.map_or_else(|| "no state".to_owned(), |state| state.to_string());
    let waits = match (state, step.operation) {
        (State::PreparingUpdate, Some(OperationStep::Begin)) => {
            ": waits until Podward and the hook inPlaceUpdate release it"
        }
        (State::PreparingUpdate, _) => ": waits until the hook inPlaceUpdate releases it",
        (State::PreparingDelete, _) => ": waits until the hook preDelete releases it",
        (State::PreparingNormal, _) => ": waits until the hook preNormal confirms it",
        (State::Updated, _) => ": waits until the hook inPlaceUpdate confirms it",
        (State::Updating, _) => ": its containers are replaced",
        (State::Normal, _) => "",
    };
    format!("CloneSet {}: from {from} to {state}{waits}", set.name_any())
}

/// Reports pods that wait longer for a hook than its deadline, if the status did not say so before.
pub(crate) fn past_deadline(
    context: &Context,
    set: &CloneSet,
    before: &CloneSetStatus,
    after: &CloneSetStatus,
) {
    let kind = CloneSetCondition::HOOK_PAST_DEADLINE;
    let message = |status: &CloneSetStatus| {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|condition| condition.message.clone())
    };
    if let Some(new) = message(after).filter(|new| message(before).as_ref() != Some(new)) {
        context.events.warning_about(about(set), kind, new);
    }
}

/// Reports a reconciliation that failed. The same failure is reported once, and counted each time.
pub(crate) fn failed(context: &Context, set: &CloneSet, error: &SetError) {
    if error.is_outdated() {
        return;
    }
    context.metrics.errors.inc();
    let text = error.to_string();
    let is_new = context.remember(&set.uid().unwrap_or_default(), |memory| {
        memory.reported.replace(text.clone()).as_ref() != Some(&text)
    });
    if is_new && matches!(error, SetError::Invalid { .. }) {
        context.events.warning_about(about(set), "Invalid", text);
    }
}

fn action(step: &PodStep) -> &'static str {
    match (step.delete, step.update || step.next_batch, step.state) {
        (true, _, _) => "delete",
        (_, true, _) => "update",
        (_, _, Some(_)) => "transition",
        _ => "condition",
    }
}

fn word(outcome: &Result<Outcome, SetError>) -> &'static str {
    match outcome {
        Ok(Outcome::Written) => "written",
        Ok(Outcome::Deleted) => "deleted",
        Ok(Outcome::Held) => "held",
        Err(error) if error.is_outdated() => "outdated",
        Err(error) if error.is_refused() => "refused",
        Err(_) => "failed",
    }
}
