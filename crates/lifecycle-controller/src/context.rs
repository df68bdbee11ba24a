//! The state that all reconciliations share.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use podward_core::ConditionStatus;
use podward_kube_util::{ApiError, CachedPod};
use podward_runtime::progress::Progress;

use crate::decide::Decision;
use crate::deciders::Deciders;
use crate::drain_turns::DrainTurns;
use crate::gone_services::GoneServiceChecks;
use crate::joint_removals::JointRemovals;
use crate::observation::Observation;
use crate::report::{Observed, Report};
use crate::retries::Retries;
use crate::service_check::ServiceChecks;
use crate::write::{ConditionChange, PodWrite, Writer};
use crate::write_through_cache::WriteThroughCache;

/// The state that all reconciliations share.
pub(crate) struct Context {
    pub(crate) cache: WriteThroughCache,
    pub(crate) deciders: Deciders,
    pub(crate) drain_turns: DrainTurns,
    pub(crate) gone_services: GoneServiceChecks,
    pub(crate) joint_removals: JointRemovals,
    /// The reconciliations in progress.
    pub(crate) progress: Progress,
    pub(crate) report: Report,
    pub(crate) retries: Retries,
    pub(crate) services: ServiceChecks,
    pub(crate) writer: Writer,
}

impl Context {
    /// Returns the context of a new leader.
    pub(crate) fn new(
        client: Client,
        deciders: Deciders,
        drain_turns: DrainTurns,
        report: Report,
        progress: Progress,
    ) -> Self {
        Context {
            cache: WriteThroughCache::default(),
            deciders,
            drain_turns,
            gone_services: GoneServiceChecks::new(client.clone()),
            joint_removals: JointRemovals::default(),
            progress,
            retries: Retries::default(),
            services: ServiceChecks::new(client.clone()),
            writer: Writer::new(client, report.metrics()),
            report,
        }
    }

    /// Records a version of a pod that a request of this process returned.
    pub(crate) fn observed(&self, pod: Arc<CachedPod>) -> Arc<CachedPod> {
        self.cache.wrote(pod.clone());
        self.deciders.rules.observe_write(&pod);
        self.observe(&pod);
        pod
    }

    /// Compares a version of `pod` with the previous one. Forgets the pod that it has replaced, and wakes the pods that
    /// wait until it is in service.
    pub(crate) fn observe(&self, pod: &CachedPod) {
        let Observed { replaced, comes_into_service } = self.report.observed(pod);
        if let Some(uid) = replaced {
            self.deciders.forget(&pod.key(), &uid);
        }
        if comes_into_service {
            self.deciders.deletions.pod_in_service(pod);
        }
    }

    /// Returns true if writes that move operations do not queue.
    pub(crate) fn has_spare_capacity(&self) -> bool {
        self.writer.has_spare_capacity() && !self.drain_turns.has_queue()
    }

    /// Returns true if the lifecycle condition is written for its own sake: its wait has lasted, and it delays no other write.
    pub(crate) fn is_condition_due(&self, wait: Option<Duration>) -> bool {
        wait.is_some_and(|wait| wait.is_zero()) && self.has_spare_capacity()
    }

    /// Writes `decision`. `wait` is how long the lifecycle condition may be out of date, `None` if it is not. Returns the
    /// stored pod.
    ///
    /// # Errors
    /// If the write fails, or if the pod was changed after it was observed.
    pub(crate) async fn write(
        &self,
        observation: &Observation<'_>,
        decision: &Decision,
        wait: Option<Duration>,
    ) -> Result<Arc<CachedPod>, ApiError> {
        let pod = observation.pod;
        if decision.plan.is_empty() {
            self.report.condition_written(&pod.key());
        }
        let condition = condition_change(pod, decision, wait);
        let mut write = PodWrite::new(&decision.plan, observation.rules.details(pod), condition);
        if wait.is_some() {
            let limits = decision.busy_limits.change(&observation.stored);
            write.annotations.extend(limits.map(|(key, text)| (key.into(), text)));
        }
        let stored = self.writer.write(pod, write).await?;
        if let ConditionChange::Report(explanation) = condition {
            self.report.condition_stored(&pod.key(), explanation);
        }
        Ok(self.observed(stored))
    }
}

/// Returns the change of the lifecycle condition in the write of `decision`. A pod in service needs none. A write that turns
/// the gate on, or that follows on the way into service, reports no new wait: mostly it is over before it would be reported
/// for its own sake, and the write that ends it can be that of a consumer, which cannot correct the condition.
fn condition_change<'a>(
    pod: &CachedPod,
    decision: &'a Decision,
    wait: Option<Duration>,
) -> ConditionChange<'a> {
    let Some(wait) = wait else { return ConditionChange::Keep };
    let Decision { plan, explanation, .. } = decision;
    let turns_gate_on = plan.gate == Some(ConditionStatus::True);
    let is_new = turns_gate_on || (explanation.enters_service() && !pod.has_condition_reason(explanation));
    let reports_nothing = explanation.needs_no_condition() || (is_new && !wait.is_zero());
    match pod.lifecycle_condition() {
        _ if !reports_nothing => ConditionChange::Report(explanation),
        Some(_) => ConditionChange::Remove,
        None => ConditionChange::Keep,
    }
}

#[cfg(test)]
mod tests {
    use podward_core::busy::BusyLimits;
    use podward_core::keys::LIFECYCLE_CONDITION;
    use podward_core::{Explanation, PodPlan};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_new_wait_on_the_way_into_service_is_not_reported_with_other_changes() {
        let (now, later) = (Some(Duration::ZERO), Some(Duration::from_secs(3)));
        let on = Some(ConditionStatus::True);
        for (stored, reason, gate, wait, expected) in [
            (None, "EnteringService", None, later, "keep"),
            (Some("Preparing"), "Completing", None, later, "remove"),
            (Some("EnteringService"), "EnteringService", None, later, "report"),
            (None, "EnteringService", None, now, "report"),
            (Some("EnteringService"), "EnteringService", on, later, "remove"),
            (None, "NotReady", on, later, "keep"),
            (None, "Preparing", None, later, "report"),
            (Some("Preparing"), "EnteringService", None, None, "keep"),
        ] {
            let condition =
                |reason| json!({"type": LIFECYCLE_CONDITION, "status": "False", "reason": reason});
            let conditions: Vec<Value> = stored.map(condition).into_iter().collect();
            let pod = serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}}))
                .unwrap();
            let explanation =
                Explanation { status: ConditionStatus::False, reason, message: "waits".to_owned() };
            let mut decision = Decision {
                plan: PodPlan::default(),
                explanation,
                overruns: Vec::new(),
                busy_limits: BusyLimits::default(),
                released: Vec::new(),
            };
            decision.plan.gate = gate;
            let change = match condition_change(&pod, &decision, wait) {
                ConditionChange::Keep => "keep",
                ConditionChange::Report(_) => "report",
                ConditionChange::Remove => "remove",
            };
            assert_eq!(change, expected, "{stored:?} {reason} {gate:?} {wait:?}");
        }
    }
}
