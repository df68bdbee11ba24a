//! Carries out a plan: creations and steps of pods at the same time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use podward_api::CloneSet;
use podward_core::cloneset::{Plan, PodStep, SetSpec};

use super::MAX_CONCURRENT;
use super::create::{NewPods, create};
use super::pods::{InPlace, Outcome, carry_out};
use crate::context::Context;
use crate::errors::{SetError, first_problem};
use crate::failed_steps::FailedSteps;
use crate::observe::{Observed, Observer};
use crate::pod::Pod;
use crate::report::Reports;
use crate::revisions::Revisions;
use crate::template::Owner;

/// What is needed to carry out a plan.
#[derive(Clone, Copy)]
pub(crate) struct PlanWork<'a> {
    pub(crate) context: &'a Context,
    pub(crate) set: &'a CloneSet,
    pub(crate) owner: &'a Owner,
    pub(crate) revisions: &'a Revisions,
    pub(crate) observer: &'a Observer<'a>,
    /// All pods of the set, those that end too.
    pub(crate) pods: &'a [Arc<Pod>],
    /// The pods of the plan.
    pub(crate) observed: &'a Observed,
    pub(crate) spec: &'a SetSpec,
}

/// What came of a plan.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// The number of pods that were created, changed or deleted, or need another identity.
    pub(crate) changes: usize,
    /// True if Podward holds the deletion of a pod.
    pub(crate) held: bool,
    /// The first failure to create or delete pods.
    pub(crate) failed_scale: Option<SetError>,
    /// The first failure to change pods.
    pub(crate) failed_update: Option<SetError>,
    /// True if another writer has overtaken any of that.
    pub(crate) overtaken: bool,
    /// What pods wait for that are not created yet.
    pub(crate) waits: Option<String>,
    /// The time after which names that pods of others have are tried again, if pods wait.
    pub(crate) retry: Option<Duration>,
}

impl PlanWork<'_> {
    /// Carries out a plan, and reports what is done.
    pub(crate) async fn carry_out(self, found: &Plan) -> Executed {
        let Self { context, set, spec, .. } = self;
        let now = Timestamp::now();
        let revision = self.revisions.update.name_any();
        let reports = Reports { context, set, spec, revision: &revision };
        let claims = context.claims.of(&self.owner.uid);
        let new = NewPods {
            set,
            owner: self.owner,
            pods: self.pods,
            claims: &claims,
            current: (&self.revisions.current.0, &self.revisions.current.1),
            update: (&revision, &set.spec.template),
            now,
        };
        let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_delete.as_ref());
        let held_by = hook.map(|hook| hook.finalizers.clone()).unwrap_or_default();
        let created = create(context, new, &held_by, found.create);
        let (created, mut executed) = tokio::join!(created, self.steps(found, reports, now));
        reports.created(created.count, created.error.as_ref());
        reports.limited(found.creations_held);
        executed.changes += created.count + created.taken + created.deleted;
        executed.overtaken |= created.overtaken;
        executed.failed_scale = first_problem(created.error, executed.failed_scale);
        (executed.waits, executed.retry) = (created.waits, created.retry);
        executed
    }

    async fn steps(self, found: &Plan, reports: Reports<'_>, now: Timestamp) -> Executed {
        let grace = self.set.spec.update_strategy.in_place_update_strategy.map(|it| it.grace_period_seconds);
        let lifecycle = self.spec.lifecycle.as_ref();
        let one = |step: PodStep| async move {
            if self.context.stop.is_cancelled() {
                return None;
            }
            let _work = self.context.progress.begin();
            let pod = &*self.observed.pods.get(step.pod)?.pod;
            let in_place = InPlace {
                change: self.observer.change(pod),
                revision: reports.revision,
                grace_seconds: grace.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or_default(),
                hook: lifecycle.and_then(|lifecycle| lifecycle.in_place_update.as_ref()),
                now,
            };
            let seen = self.observed.seen.get(step.pod)?;
            let (client, cache) = (&self.context.client, &self.context.pods);
            let moved = || reports.moved(pod, seen, &step);
            let outcome = carry_out((client, cache), pod, &step, in_place, moved).await;
            if let Ok(outcome @ (Outcome::Deleted | Outcome::Held)) = outcome {
                self.context.remember(&self.owner.uid, |memory| {
                    // Podward deletes a pod that it holds, perhaps before it is seen again.
                    memory.own_deletions.add(pod);
                    if outcome == Outcome::Held {
                        memory.held.add(pod, Timestamp::now());
                    }
                });
            }
            reports.step(&step, &outcome);
            Some((step, outcome))
        };
        let steps = futures::stream::iter(found.steps.iter().cloned().map(one));
        let mut steps = std::pin::pin!(steps.buffer_unordered(MAX_CONCURRENT).filter_map(std::future::ready));
        let (mut executed, mut updates) = (Executed::default(), 0);
        let mut failed = FailedSteps::default();
        while let Some((step, outcome)) = steps.next().await {
            match outcome {
                Ok(Outcome::Written | Outcome::Deleted) => {
                    executed.changes += 1;
                    updates += usize::from(step.update);
                }
                Ok(Outcome::Held) => executed.held = true,
                Err(error) => {
                    executed.overtaken |= error.is_overtaken();
                    failed.add(&step, error);
                }
            }
        }
        reports.updated(updates);
        reports.failed(&failed);
        (executed.failed_scale, executed.failed_update) = failed.into_first();
        executed
    }
}
