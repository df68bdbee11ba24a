//! The reconciliation of one set: observe, plan, write, report.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use podward_api::CloneSet;
use podward_core::cloneset::{Plan, SetPod, SetSpec, UpdateKind, count, plan};

use crate::adopt::adopt;
use crate::claims;
use crate::context::Context;
use crate::errors::SetError;
use crate::execute::{Executed, PlanWork};
use crate::observe::{ObservedPod, Observer, observe, spec_of};
use crate::overdue;
use crate::podlist;
use crate::report;
use crate::revisions::{delete_old, revisions};
use crate::status::{self, Report};
use crate::template::Owner;

/// The pause before a deletion that Podward holds is tried again. Podward deletes the pod by itself.
const HELD_DELAY: Duration = Duration::from_secs(10);

/// Reconciles a set.
///
/// # Errors
/// Fails if a request fails. What was written until then is in the caches.
pub(crate) async fn reconcile(set: Arc<CloneSet>, context: Arc<Context>) -> Result<Action, SetError> {
    let _work = context.progress.begin();
    let uid = set.uid().unwrap_or_default();
    // Its pods are deleted with it.
    if set.metadata.deletion_timestamp.is_some() {
        context.forget(&uid);
        return Ok(Action::await_change());
    }
    let object = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
    let options = match set.check().and_then(|()| set.hook_options()) {
        Ok(options) => options,
        Err(error) => {
            let problem = error.to_string();
            status::write_invalid(&context, &set, &problem).await?;
            return Err(SetError::Invalid { object, problem });
        }
    };
    let owner = Owner::of(&set);
    let now = Timestamp::now();
    adopt(&context, &set, &owner).await?;
    // Before pods are created: they do not get claims that go with others.
    let cleaned = claims::clean(&context, &set, &owner).await;
    let revisions = revisions(&context, &set, &owner).await?;
    let pods = context.pods.of(&uid);
    // Before pods are created: they may get the name of one that is gone.
    if podlist::forget_the_gone(&context, &set, &pods).await? {
        return Ok(Action::await_change());
    }
    let observer = Observer::new(&set, &revisions.update, &revisions.all, options, now);
    let observed = observe(&observer, &pods);
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
    let Executed { changes, held, failed_scale, failed_update, waits } = work.carry_out(&found).await;

    let (late, past_deadline) = overdue::report(&spec, &observed.seen);
    context.past_deadline(&uid, late);
    context.retain_pods(&uid, &pods);
    let before = status::stored(&context, &set);
    let update_revision = revisions.update.name_any();
    let report = Report {
        spec: &spec,
        counts: count(&spec, &observed.seen),
        update_revision: &update_revision,
        current_revision: &revisions.current.0,
        collisions: revisions.collisions,
        failed_scale: failed_scale.as_ref().map(ToString::to_string),
        waits,
        failed_update: failed_update
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| not_in_place(&spec, &found, &observed.seen))
            .or_else(|| failing(&observed.pods)),
        past_deadline,
    };
    let (wanted, progress_wake) = status::status(&set, &before, report, now);
    let status_wait = status::write(&context, &set, &before, wanted).await?;
    if let Some(error) = failed_scale.or(failed_update) {
        return Err(error);
    }
    cleaned?;
    delete_old(&context, &set, &owner, &revisions).await?;
    context.succeeded(&uid);
    // Own writes cause no event that is newer than what is known already.
    let again = (changes > 0).then_some(Duration::ZERO).or(held.then_some(HELD_DELAY));
    let wake = observed.pods.iter().filter_map(|pod| pod.wake).chain(progress_wake).min();
    let wake = wake.map(|at| at.duration_since(now).unsigned_abs());
    let next = [again, status_wait, wake].into_iter().flatten().min();
    Ok(next.map_or_else(Action::await_change, Action::requeue))
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

/// Returns which pods do not run with their new containers.
fn failing(observed: &[ObservedPod]) -> Option<String> {
    let mut failing = observed.iter().filter(|pod| !pod.report.failing.is_empty());
    let first = failing.next()?;
    let words = first.report.failing.iter().map(|it| format!("container {}: {}", it.container, it.reason));
    let words: Vec<String> = words.collect();
    let others = match failing.count() {
        0 => String::new(),
        count => format!("; and {} more", report::counted(count)),
    };
    Some(format!("pod {} was changed and does not run: {}{others}", first.pod.name_any(), words.join(", ")))
}

/// Returns when to reconcile a set again after `error`.
pub(crate) fn on_error(set: Arc<CloneSet>, error: &SetError, context: Arc<Context>) -> Action {
    report::failed(&context, &set, error);
    Action::requeue(context.failed(&set.uid().unwrap_or_default(), error))
}

#[cfg(test)]
mod tests;
