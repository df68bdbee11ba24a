//! The components that decide with the core what happens to a pod: hooks, rules and deletions.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use podward_core::busy::BusyChecks;
use podward_core::{NoRules, PodPlan, UnixNanos};
use podward_deletion::{DeletionOutcome, DeletionStep, Deletions};
use podward_hooks::HookCalls;
use podward_kube_util::{ApiError, CachedPod, EventDraft, PodKey, holds_deletion, unix_nanos};
use podward_rules::Rules;

use crate::decide::Decision;
use crate::observation::Observation;

/// The components that take part in each decision.
pub(crate) struct Deciders {
    pub(crate) hooks: HookCalls,
    pub(crate) deletions: Deletions,
    pub(crate) rules: Rules,
    /// How long operations wait for busy pods.
    pub(crate) max_busy: Duration,
}

/// The result of [`Deciders::deletion`].
pub(crate) enum DeletionTurn {
    /// The pod was deleted or evicted. The event describes it.
    Deleted(EventDraft),
    /// The pod stays for now.
    Stays(PendingDeletion),
}

/// The changes for the deletion of a pod that stays for now.
#[derive(Default)]
pub(crate) struct PendingDeletion {
    /// The changes to merge into the write.
    pub(crate) step: DeletionStep,
    /// When to retry a deletion that the API server refused.
    pub(crate) retry: Option<Duration>,
}

impl Deciders {
    /// Deletes `pod` if its deletion is due, or returns what else to do about it.
    ///
    /// # Errors
    /// If a request to the API server fails.
    pub(crate) async fn deletion(&self, pod: &CachedPod, now: UnixNanos) -> Result<DeletionTurn, ApiError> {
        Ok(DeletionTurn::Stays(match self.deletions.execute(pod).await? {
            DeletionOutcome::Deleted(event) => return Ok(DeletionTurn::Deleted(event)),
            DeletionOutcome::Refused(retry) => {
                PendingDeletion { retry: Some(retry), ..PendingDeletion::default() }
            }
            DeletionOutcome::Stays(step) => PendingDeletion { step: *step, retry: None },
            DeletionOutcome::NotDue => {
                let is_busy = holds_deletion(pod, self.max_busy, now);
                PendingDeletion { step: self.deletions.step(pod, is_busy).await?, retry: None }
            }
        }))
    }

    /// Reads what the hooks and rules know of `pod`. Returns `None` while the hooks are not known: then nothing may be
    /// decided.
    pub(crate) fn observe<'a>(
        &self,
        pod: &'a CachedPod,
        deletion: &'a DeletionStep,
        now: Timestamp,
    ) -> Option<Observation<'a>> {
        let rules = self.rules.checks(pod);
        let (hooks, known) = self.hooks.hooks_for(pod)?;
        Some(Observation {
            pod,
            stored: pod.view(),
            now: unix_nanos(now),
            ready_in_doubt: pod.ready_is_in_doubt_for(now),
            deletion,
            rules,
            hooks,
            known,
            answers: Box::new(self.hooks.answers(pod.uid())),
            max_busy: self.max_busy,
            dead_services: Vec::new(),
            gone_services: Vec::new(),
        })
    }

    /// Passes the decision to the rules, which grant a place in a budget only if all other checks pass.
    pub(crate) fn decided(&self, observation: &Observation<'_>, decision: &Decision) {
        let Observation { pod, rules, deletion, .. } = observation;
        let busy = BusyChecks::new(&observation.stored, self.max_busy, observation.now, &NoRules);
        self.rules.set_other_checks(pod, rules, &decision.plan, &deletion.checks(&busy));
    }

    /// Starts what follows the write that resulted in `stored`: requests to hooks, and the rest of the deletion step.
    pub(crate) async fn follow_up(&self, stored: &Arc<CachedPod>, step: &DeletionStep, plan: &PodPlan) {
        let view = stored.view();
        // The API server removes a terminating pod with its last finalizer, unless its containers still run.
        if view.terminating && view.finalizers.is_empty() {
            self.forget(&stored.key(), stored.uid());
        } else {
            self.hooks.ask(stored, &plan.questions());
        }
        self.deletions.after_write(stored, step).await;
    }

    /// Discards the state for the pod `key` with this UID, which is gone.
    pub(crate) fn forget(&self, key: &PodKey, uid: &str) {
        self.hooks.forget(uid);
        self.rules.forget_pod(uid);
        self.deletions.forget(key);
    }
}
