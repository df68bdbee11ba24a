//! Everything that a reconciliation reports: metrics, traces, events and the throttling of the lifecycle condition.
//!
//! The state of this module can be lost at any time. No decision about a pod depends on it.

mod busy;
mod condition_throttle;
mod hook_reports;
mod metrics;
mod oldest_operations;
mod operation_state;
mod overdue_questions;
mod phase_history;
mod refusals;
mod tracker;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use podward_core::history::{self, OperationRecord};
use podward_core::trace::RunOutcome;
use podward_core::{Explanation, PodPlan, UnixNanos};
use podward_deletion::DeletionStep;
use podward_kube_util::{ApiError, CachedPod, EventDraft, Events, PodKey, now};
use podward_rules::PodRules;
use podward_timeline::duration;
use podward_traces::OperationTraces;

use crate::decide::Decision;
use crate::deciders::Deciders;
use phase_history::HistoryEvent;
use tracker::Tracker;

pub(crate) use metrics::{Metrics, WriteKind};
pub(crate) use tracker::{GonePod, Observed};

/// The result of a reconciliation.
pub(crate) struct Outcome<'a> {
    /// The pod as it is stored now.
    pub(crate) pod: &'a CachedPod,
    /// The changes for the deletion of the pod.
    pub(crate) deletion: &'a DeletionStep,
    /// The results of the PodTransitionRules.
    pub(crate) rules: &'a PodRules,
    /// The decision that was written.
    pub(crate) decision: &'a Decision,
}

/// Reports the course of all pods.
pub(crate) struct Report {
    events: Events,
    metrics: Arc<Metrics>,
    traces: OperationTraces,
    tracker: Tracker,
}

impl Report {
    /// Returns the report of a new leader.
    pub(crate) fn new(events: Events, metrics: Arc<Metrics>, traces: OperationTraces) -> Self {
        Report { events, metrics, tracker: Tracker::new(traces.clone()), traces }
    }

    /// Returns the metrics.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Compares a version of a pod with the previous one: metrics and spans of phases, and the phase history. Returns what
    /// it means for others.
    pub(crate) fn observed(&self, pod: &CachedPod) -> Observed {
        self.tracker.observe(pod, &self.metrics)
    }

    /// Adds the reports of hooks in `plan` to the spans of the current phases. Call this before `plan` is written.
    pub(crate) fn hooks_reported(&self, pod: &CachedPod, plan: &PodPlan) {
        self.traces.observe_hooks(pod, &plan.hook_reports, plan.now);
    }

    /// Returns how long the pod has to wait until the lifecycle condition is written for its own sake, zero if it is
    /// due. `None` if the condition is stored already, or if the pod needs none.
    pub(crate) fn condition_due(&self, pod: &CachedPod, explanation: &Explanation) -> Option<Duration> {
        let view = pod.view();
        // A terminating pod needs a condition only if a consumer still holds it. Most are gone soon.
        let needs_condition = !view.terminating || view.protection_finalizers().next().is_some();
        if needs_condition { self.tracker.condition_due(pod, explanation) } else { None }
    }

    /// Records that the lifecycle condition is written for its own sake.
    pub(crate) fn condition_written(&self, pod: &PodKey) {
        self.tracker.condition_written(pod);
    }

    /// Records that the lifecycle condition was stored with `explanation`.
    pub(crate) fn condition_stored(&self, pod: &PodKey, explanation: &Explanation) {
        self.tracker.condition_stored(pod, explanation);
    }

    /// Reports that `pod` was deleted or evicted.
    pub(crate) fn deleted(&self, pod: &CachedPod, event: EventDraft) {
        self.tracker.begins_to_end(pod);
        self.ended(pod, event, pod.records_at_end(now()));
    }

    /// Reports the operations of a pod that is being deleted, with `event`: they survive the pod there.
    fn ended(&self, pod: &CachedPod, mut event: EventDraft, records: Vec<OperationRecord>) {
        for record in records.iter().filter(|record| record.outcome == Some(RunOutcome::PodGone)) {
            // They have ended, so that the present time does not matter.
            let phases: Vec<String> = record
                .spans(UnixNanos::default())
                .map(|(phase, start, end)| format!("{phase} {}", duration(end - start)))
                .collect();
            let OperationRecord { id, operation_type, .. } = record;
            event.note.push_str(&format!("; operation {id} ({operation_type}): {}", phases.join(", ")));
        }
        self.events.deleted(pod, event, history::text(records));
    }

    /// Reports the outcome of a reconciliation. Returns when to reconcile again so that a report is not missed.
    pub(crate) fn reconciled(&self, outcome: Outcome<'_>, deciders: &Deciders) -> Option<Duration> {
        let Outcome { pod, deletion, rules, decision } = outcome;
        let plan = &decision.plan;
        self.tracker.refusals_ended(&pod.key());
        if let Some(event) = &deletion.event {
            self.events.normal(pod, event.clone());
        }
        let new = self.tracker.new_hook_reports(&pod.key(), &plan.hook_reports, &self.metrics);
        hook_reports::report(&self.events, &self.metrics, pod, &new, plan.now);
        hook_reports::report_refused(&self.events, &self.metrics, pod, &plan.refused);
        busy::report(&self.events, &self.metrics, &self.tracker, pod, &decision.overruns);
        for service in &decision.released {
            self.events.normal(pod, service.event());
        }
        let mut next = self.waits(pod, rules, deciders);
        if pod.view().terminating {
            let begins = self.tracker.begins_to_end(pod);
            let records = if begins { pod.records_at_end(now()) } else { Vec::new() };
            if !records.is_empty() {
                let note = "the pod is being deleted".to_owned();
                self.ended(pod, EventDraft { reason: "OperationsEnded", note }, records);
            }
        } else {
            match self.tracker.due_history(pod) {
                HistoryEvent::Due(draft) => self.events.normal(pod, draft),
                HistoryEvent::Later(wait) => next = next.into_iter().chain([wait]).min(),
                HistoryEvent::None => {}
            }
        }
        next
    }

    /// Reports that the reconciliation of `pod` failed. A refused write is retried often and reported seldom.
    pub(crate) fn failed(&self, pod: &CachedPod, error: &ApiError) {
        self.metrics.failed(error.category());
        if let ApiError::Refused { .. } = error {
            let note = error.to_string();
            if self.tracker.is_due_refusal(&pod.key(), &note) {
                self.events.warning(pod, "WriteRefused", note);
            }
        }
    }

    /// Forgets the pods that do not exist any more under their name and UID, and returns them.
    pub(crate) fn retain(&self, exists: impl Fn(&PodKey, &str) -> bool) -> Vec<GonePod> {
        self.tracker.retain(&self.metrics, exists)
    }

    fn waits(&self, pod: &CachedPod, rules: &PodRules, deciders: &Deciders) -> Option<Duration> {
        let waiting = waits::Waiting::of(pod, rules, deciders.max_busy);
        let (due, next) = self
            .tracker
            .waits(&pod.key(), &self.metrics, |waits| waits.update(&waiting, std::time::Instant::now()))?;
        let refusal =
            |check_request: &_| deciders.rules.describe_refusals(pod.namespace(), rules, check_request);
        for wait in due {
            if let Some(draft) = waiting.event(&wait, refusal) {
                self.events.normal(pod, draft);
            }
        }
        next
    }
}
