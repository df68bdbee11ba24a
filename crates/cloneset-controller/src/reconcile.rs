//! The reconciliation of one set: observe, plan, write, report.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use podward_api::CloneSet;
use podward_api::clone_set::{CloneSetCondition, CloneSetStatus};
use podward_core::cloneset::{Plan, SetPod, SetSpec, State, UpdateKind, count, plan};

use crate::adopt::adopt;
use crate::claims;
use crate::context::Context;
use crate::errors::{SetError, first_problem};
use crate::execute::{Executed, PlanWork};
use crate::observe::{Observed, ObservedPod, Observer, observe, spec_of};
use crate::overdue;
use crate::own_requests::HELD_DELAY;
use crate::pod::Pod;
use crate::podlist;
use crate::put_back;
use crate::report;
use crate::revisions::{Revisions, delete_old, revisions};
use crate::status::{self, Report};
use crate::template::{Owner, Progress};

/// Reconciles a set.
///
/// # Errors
/// Fails if a request fails. What was written until then is in the caches.
pub(crate) async fn reconcile(set: Arc<CloneSet>, context: Arc<Context>) -> Result<Action, SetError> {
    let _work = context.progress.begin();
    let uid = set.uid().unwrap_or_default();
    let owner = Owner::of(&set);
    // Its pods are deleted with it.
    if set.metadata.deletion_timestamp.is_some() {
        // In the foreground, it waits for them.
        put_back::remove(&context, &set, &owner).await?;
        context.forget(&uid);
        return Ok(Action::await_change());
    }
    let object = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
    let options = match set.check().and_then(|()| set.hook_options()) {
        Ok(options) => options,
        Err(error) => {
            let problem = error.to_string();
            status::write_problem(&context, &set, CloneSetCondition::INVALID, problem.clone()).await?;
            return Err(SetError::Invalid { object, problem });
        }
    };
    let now = Timestamp::now();
    let prepared = match prepare(&context, &set, &owner).await {
        Ok(prepared) => prepared,
        Err(error) => {
            not_reconciled(&context, &set, &error).await;
            return Err(error);
        }
    };
    let Some(Prepared { revisions, pods, not_cleaned }) = prepared else { return Ok(Action::await_change()) };
    let observer = Observer::new(&set, &revisions.update, &revisions.all, options, now);
    let mut observed = observe(&observer, &pods);
    context.remember(&uid, |memory| memory.held.observe(&mut observed, now));
    let spec = spec_of(&set, &options);
    let found = plan(&spec, &observed.seen);
    let work = PlanWork {
        context: &context,
        set: &set,
        owner: &owner,
        revisions: &revisions,
        observer: &observer,
        pods: &pods,
        observed: &observed,
        spec: &spec,
    };
    let Executed { changes, held, failed_scale, failed_update, overtaken, waits, retry } =
        work.carry_out(&found).await;

    let (late, past_deadline) = overdue::report(&spec, &observed.seen);
    context.past_deadline(&uid, late);
    context.retain_pods(&uid, &pods);
    let before = status::stored(&context, &set);
    let update_revision = revisions.update.name_any();
    let problem_before = |kind, has_failed: bool| has_failed.then(|| problem_before(&before, kind)).flatten();
    let report = Report {
        spec: &spec,
        counts: count(&spec, &observed.seen),
        update_revision: &update_revision,
        current_revision: &revisions.current.0,
        collisions: revisions.collisions,
        failed_scale: problem([failed_scale.as_ref(), not_cleaned.as_ref()]).or_else(|| {
            problem_before(CloneSetCondition::FAILED_SCALE, failed_scale.is_some() || not_cleaned.is_some())
        }),
        waits,
        failed_update: problem([failed_update.as_ref()])
            .or_else(|| not_in_place(&spec, &found, &observed.seen))
            .or_else(|| troubled(&observed))
            .or_else(|| problem_before(CloneSetCondition::FAILED_UPDATE, failed_update.is_some())),
        past_deadline,
    };
    let (wanted, progress_wake) = status::status(&set, &before, report, now);
    context.remember(&uid, |memory| memory.latest_status = Some(wanted.clone()));
    let status_wait = status::write(&context, &set, &before, wanted).await?;
    let overtaken = overtaken || not_cleaned.as_ref().is_some_and(SetError::is_overtaken);
    if let Some(error) = [failed_scale, failed_update, not_cleaned].into_iter().fold(None, first_problem) {
        context.remember(&uid, |memory| memory.overtaken = overtaken);
        return Err(error);
    }
    delete_old(&context, &set, &owner, &revisions).await?;
    context.succeeded(&uid);
    // Own writes cause no event that is newer than what is known already.
    let again = (changes > 0).then_some(Duration::ZERO).or(held.then_some(HELD_DELAY));
    let wake = observed.pods.iter().filter_map(|pod| pod.wake).chain(progress_wake).min();
    let wake = wake.map(|at| at.duration_since(now).unsigned_abs());
    let next = [again, status_wait, wake, retry].into_iter().flatten().min();
    Ok(next.map_or_else(Action::await_change, Action::requeue))
}

/// What a plan begins with.
struct Prepared {
    revisions: Revisions,
    pods: Vec<Arc<Pod>>,
    /// Why claims of pods that are gone could not be deleted, or put back finalizers not be removed from pods that terminate.
    /// Nothing waits for that.
    not_cleaned: Option<SetError>,
}

/// Does what comes before the plan. `None`: the set itself has changed.
///
/// # Errors
/// Fails if a request fails, or the template is not one of pods.
async fn prepare(context: &Context, set: &CloneSet, owner: &Owner) -> Result<Option<Prepared>, SetError> {
    adopt(context, set, owner).await?;
    // Before pods are created: they do not get claims that go with others.
    let claims = claims::clean(context, set, owner).await;
    let put_back = put_back::remove(context, set, owner).await;
    let not_cleaned = first_problem(claims.err(), put_back.err());
    let revisions = revisions(context, set, owner).await?;
    let pods = context.pods.of(&owner.uid);
    // Before pods are created: they may get the name of one that is gone.
    let has_changed = podlist::forget_the_gone(context, set, &pods).await?;
    Ok((!has_changed).then_some(Prepared { revisions, pods, not_cleaned }))
}

/// Writes why nothing is done for a set, unless the API server seems to have too much to do.
async fn not_reconciled(context: &Context, set: &CloneSet, error: &SetError) {
    let lasts = || context.remember(&set.uid().unwrap_or_default(), |memory| memory.failures > 0);
    let is_written = match error.code() {
        Some(429) => false,
        Some(400..500) => !error.is_outdated(),
        Some(_) => lasts(),
        None => matches!(error, SetError::Invalid { .. }),
    };
    if !is_written {
        return;
    }
    let reason = CloneSetCondition::NOT_RECONCILED;
    if let Err(error) = status::write_problem(context, set, reason, error.to_string()).await {
        tracing::debug!(%error, "the status of a CloneSet that is not reconciled");
    }
}

/// Returns the first of `errors` that is a problem: one of a step that another writer has overtaken is none.
fn problem<const N: usize>(errors: [Option<&SetError>; N]) -> Option<String> {
    errors.into_iter().flatten().find(|error| !error.is_outdated()).map(ToString::to_string)
}

/// Returns the problem that a condition said before. It stays until the steps are repeated that another writer has
/// overtaken, unless another problem is known now.
fn problem_before(before: &CloneSetStatus, kind: &str) -> Option<String> {
    let stored = before.conditions.iter().find(|it| it.type_ == kind && it.reason == status::FAILED)?;
    Some(stored.message.clone())
}

/// Returns why the set does not update pods that cannot be changed in place.
fn not_in_place(spec: &SetSpec, found: &Plan, seen: &[SetPod]) -> Option<String> {
    let first = seen.get(*found.not_in_place.first()?)?;
    let is_only = spec.update == UpdateKind::InPlaceOnly;
    is_only.then(|| {
        format!(
            "{}, for example {}, cannot get the revision of the template in place, and the type is InPlaceOnly; change only \
             images, labels, annotations and resources, or use InPlaceIfPossible",
            report::counted(found.not_in_place.len()),
            first.name
        )
    })
}

/// Returns which pods do not run with their new containers, or whose update does not go on.
fn troubled(observed: &Observed) -> Option<String> {
    let mut troubles = observed.pods.iter().zip(&observed.seen).filter_map(|(pod, seen)| trouble(pod, seen));
    let first = troubles.next()?;
    Some(match troubles.count() {
        0 => first,
        count => format!("{first}; and {} more", report::counted(count)),
    })
}

fn trouble(pod: &ObservedPod, seen: &SetPod) -> Option<String> {
    let failing = &pod.report.failing;
    if !failing.is_empty() {
        let words = failing.iter().map(|it| format!("container {}: {}", it.container, it.reason));
        let words: Vec<String> = words.collect();
        return Some(format!("pod {} was changed and does not run: {}", seen.name, words.join(", ")));
    }
    match &pod.report.progress {
        // In other states, the next update replaces what is left of this one.
        Progress::Blocked(reason) if seen.state == Some(State::Updating) => {
            Some(format!("the update of pod {} does not go on: {reason}", seen.name))
        }
        _ => None,
    }
}

/// Returns when to reconcile a set again after `error`.
pub(crate) fn on_error(set: Arc<CloneSet>, error: &SetError, context: Arc<Context>) -> Action {
    report::failed(&context, &set, error);
    Action::requeue(context.failed(&set.uid().unwrap_or_default(), error))
}

#[cfg(test)]
mod tests;
