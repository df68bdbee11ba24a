//! The reconciliation of one pod: observe, decide, write, report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::runtime::controller::Action;
use podward_deletion::is_due;
use podward_kube_util::{ApiError, CachedPod, unix_nanos};

use crate::context::Context;
use crate::decide::{decide, leaves_service};
use crate::deciders::DeletionTurn;
use crate::drain_turns::DrainTurn;
use crate::report::Outcome;

/// The delay after which a pod is reconciled again if the hooks were not known and no event followed.
const HOOKS_UNKNOWN_DELAY: Duration = Duration::from_secs(5);
/// The shortest delay before a condition is written that could not be written because of other writes. Each try is a
/// reconciliation, so a shorter one costs CPU time when hundreds of pods wait.
const CONDITION_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Reconciles the pod, with its newest known version. After a conflict, the pod is read and reconciled once more.
///
/// # Errors
/// If a request to the API server fails. The pod is unchanged then, or the write was a conflict.
pub(crate) async fn reconcile(watched: Arc<CachedPod>, context: Arc<Context>) -> Result<Action, ApiError> {
    let _work = context.progress.begin();
    let pod = context.cache.newest(watched);
    let mut turn = context.drain_turns.called(&pod.key());
    match reconcile_pod(pod.clone(), &mut turn, &context).await {
        Err(conflict @ ApiError::Conflict { .. }) => match newer_version(&pod, &context).await? {
            Some(newer) => reconcile_pod(newer, &mut turn, &context).await,
            None => Err(conflict),
        },
        outcome => outcome,
    }
}

/// Reconciles `pod`. A pod that is to leave service does so in its `turn`. If it has none, it takes one, or waits until it is
/// called.
async fn reconcile_pod(
    pod: Arc<CachedPod>,
    turn: &mut Option<DrainTurn>,
    context: &Context,
) -> Result<Action, ApiError> {
    let Context { deciders, report, .. } = context;
    context.observe(&pod);
    let now = Timestamp::now();
    let deletion = match deciders.deletion(&pod, unix_nanos(now)).await? {
        DeletionTurn::Deleted(event) => {
            report.deleted(&pod, event);
            return Ok(Action::await_change());
        }
        DeletionTurn::Stays(deletion) => deletion,
    };
    let Some(mut observation) = deciders.observe(&pod, &deletion.step, now) else {
        return Ok(Action::requeue(HOOKS_UNKNOWN_DELAY));
    };
    let services = context.services.check(&pod).await?;
    observation.dead_services = services.dead;
    let gone = context.gone_services.check(&pod, Instant::now()).await?;
    observation.gone_services = gone.services;

    let decision = decide(&observation);
    report.hooks_reported(&pod, &decision.plan);
    deciders.decided(&observation, &decision);

    let joint = context.joint_removals.wait(&pod.key(), &observation.stored, &decision.plan, Instant::now());
    let joint = joint.filter(|_| context.has_spare_capacity());
    if joint.is_some() {
        return Ok(requeue([joint, deletion.retry, deletion.step.wake, decision.wake()]));
    }

    let leaves_service = leaves_service(&observation.stored, &decision.plan);
    if leaves_service && turn.is_none() {
        *turn = context.drain_turns.take(&pod.key());
        if turn.is_none() {
            return Ok(requeue([deletion.retry, deletion.step.wake, decision.wake()]));
        }
    }

    let condition = report.condition_due(&pod, &decision.explanation);
    let condition_wait = if !decision.plan.is_empty() || context.is_condition_due(condition) {
        None
    } else {
        condition.map(|wait| wait.max(CONDITION_RETRY_DELAY))
    };
    let is_written = !decision.plan.is_empty() || (condition.is_some() && condition_wait.is_none());
    let begun = Instant::now();
    let stored =
        if is_written { context.write(&observation, &decision, condition).await? } else { pod.clone() };
    if leaves_service && let Some(turn) = turn.take() {
        turn.written(begun.elapsed());
    }

    deciders.follow_up(&stored, &deletion.step, &decision.plan).await;
    let outcome =
        Outcome { pod: &stored, deletion: &deletion.step, rules: &observation.rules, decision: &decision };
    let next_report = report.reconciled(outcome, deciders);
    context.retries.succeeded(&pod.key());

    // A deletion that was due before has been tried in this reconciliation and returned its own delay.
    let is_due_now = !is_due(&pod) && is_due(&stored);
    Ok(requeue([
        is_due_now.then_some(Duration::ZERO),
        deletion.retry,
        deletion.step.wake,
        observation.ready_in_doubt.map(jiff::SignedDuration::unsigned_abs),
        services.next_check,
        gone.next_check,
        decision.wake(),
        condition_wait,
        next_report,
    ]))
}

/// Returns the action that reconciles again after the shortest of `delays`.
fn requeue(delays: impl IntoIterator<Item = Option<Duration>>) -> Action {
    delays.into_iter().flatten().min().map_or_else(Action::await_change, Action::requeue)
}

/// Reads the version of `pod` that caused a conflict. The watch can be seconds behind, and until then every write would
/// conflict. Returns `None` if the pod is gone, was replaced or is not opted in any more.
async fn newer_version(pod: &CachedPod, context: &Context) -> Result<Option<Arc<CachedPod>>, ApiError> {
    let newer = context.writer.get(&pod.key()).await?;
    let is_same = |newer: &CachedPod| newer.uid() == pod.uid() && newer.view().is_controlled();
    Ok(newer.filter(is_same).map(|newer| context.observed(Arc::new(newer))))
}

/// Returns when to reconcile `watched` again after `error`. A deleted pod, and mostly a conflict, causes an event of the watch;
/// other failures are retried with back-off.
pub(crate) fn on_error(watched: Arc<CachedPod>, error: &ApiError, context: Arc<Context>) -> Action {
    context.report.failed(&watched, error);
    if let ApiError::Gone { .. } = error {
        context.deciders.forget(&watched.key(), watched.uid());
        return Action::await_change();
    }
    Action::requeue(context.retries.failed(&watched.key(), error))
}
