//! The status of a set.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_api::clone_set::{CloneSetCondition, CloneSetStatus, NO_PROGRESS_DEADLINE};
use podward_api::{CloneSet, compile_selector};
use podward_core::cloneset::{SetCounts, SetSpec};
use serde_json::json;

use crate::context::Context;
use crate::errors::{SetError, call};
use crate::progressing::{Update, progressing};
use crate::report;

/// The shortest time between two writes of a status.
const INTERVAL: Duration = Duration::from_secs(1);

/// The reason of conditions that say what has failed.
pub(crate) const FAILED: &str = "Failed";

/// What a status says.
#[derive(Clone, Debug)]
pub(crate) struct Report<'a> {
    pub(crate) spec: &'a SetSpec,
    pub(crate) counts: SetCounts,
    pub(crate) update_revision: &'a str,
    pub(crate) current_revision: &'a str,
    pub(crate) collisions: u32,
    /// Why pods could not be created or deleted.
    pub(crate) failed_scale: Option<String>,
    /// What pods wait for that are not created yet.
    pub(crate) waits: Option<String>,
    /// Why pods could not be updated.
    pub(crate) failed_update: Option<String>,
    /// Which pods wait longer for a hook than its deadline.
    pub(crate) past_deadline: Option<String>,
}

/// Returns the status that follows `before`, and when it changes by itself.
pub(crate) fn status(
    set: &CloneSet,
    before: &CloneSetStatus,
    report: Report<'_>,
    now: Timestamp,
) -> (CloneSetStatus, Option<Timestamp>) {
    let Report { spec, counts, failed_scale, waits, failed_update, past_deadline, .. } = report;
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let all_updated = counts.updated == counts.replicas && counts.replicas == spec.replicas;
    let current = if all_updated { report.update_revision } else { report.current_revision };
    let mut conditions = before.conditions.clone();
    let scale_reason = if failed_scale.is_some() { FAILED } else { CloneSetCondition::WAITS };
    let problems = [
        (CloneSetCondition::FAILED_SCALE, scale_reason, failed_scale.or(waits)),
        (CloneSetCondition::FAILED_UPDATE, FAILED, failed_update),
        (CloneSetCondition::HOOK_PAST_DEADLINE, CloneSetCondition::WAITS, past_deadline),
    ];
    for (kind, reason, problem) in problems {
        set_problem(&mut conditions, kind, reason, problem, now);
    }
    let mut status = CloneSetStatus {
        observed_generation: set.metadata.generation,
        replicas: number(counts.replicas),
        ready_replicas: number(counts.ready),
        available_replicas: number(counts.available),
        updated_replicas: number(counts.updated),
        updated_ready_replicas: number(counts.updated_ready),
        updated_available_replicas: number(counts.updated_available),
        expected_updated_replicas: number(counts.expected_updated),
        update_revision: Some(report.update_revision.to_owned()),
        current_revision: Some(current.to_owned()),
        collision_count: Some(number(report.collisions)),
        conditions,
        label_selector: compile_selector(&set.spec.selector).ok().map(|selector| selector.to_string()),
    };
    let deadline = set.spec.progress_deadline_seconds.filter(|seconds| *seconds != NO_PROGRESS_DEADLINE);
    let update = Update {
        deadline: deadline.map(|seconds| SignedDuration::from_secs(i64::from(seconds))),
        paused: set.spec.update_strategy.paused,
        is_partial: spec.partition() > 0,
        replicas: set.spec.replicas,
    };
    let (progress, wake) = progressing(update, before, &status, now);
    status.conditions.retain(|condition| condition.type_ != CloneSetCondition::PROGRESSING);
    status.conditions.extend(progress);
    (status, wake)
}

fn set_problem(
    conditions: &mut Vec<CloneSetCondition>,
    kind: &str,
    reason: &str,
    problem: Option<String>,
    now: Timestamp,
) {
    let found = conditions.iter().position(|condition| condition.type_ == kind);
    match (problem, found) {
        (None, Some(index)) => drop(conditions.remove(index)),
        (None, None) => {}
        (Some(problem), found) => {
            let time = || Some(Time(now));
            let condition = CloneSetCondition {
                type_: kind.to_owned(),
                status: "True".to_owned(),
                reason: reason.to_owned(),
                message: problem,
                last_transition_time: time(),
                last_update_time: time(),
            };
            match found.and_then(|index| conditions.get_mut(index)) {
                Some(stored) if stored.message == condition.message => {}
                Some(stored) => {
                    let since = stored.last_transition_time.take();
                    *stored = CloneSetCondition { last_transition_time: since, ..condition };
                }
                None => conditions.push(condition),
            }
        }
    }
}

/// Writes that nothing is done for the set, and why: `reason` is [`CloneSetCondition::INVALID`] or
/// [`CloneSetCondition::NOT_RECONCILED`]. The observed generation stays: the set is not as its spec says.
///
/// # Errors
/// Fails if the request fails.
pub(crate) async fn write_problem(
    context: &Context,
    set: &CloneSet,
    reason: &str,
    problem: String,
) -> Result<(), SetError> {
    let before = stored(context, set);
    let mut wanted = before.clone();
    let kind = CloneSetCondition::FAILED_UPDATE;
    set_problem(&mut wanted.conditions, kind, reason, Some(problem), Timestamp::now());
    write(context, set, &before, wanted).await.map(drop)
}

/// Returns the status as it is stored: as it was written last, or as the watch has delivered it.
pub(crate) fn stored(context: &Context, set: &CloneSet) -> CloneSetStatus {
    let uid = set.uid().unwrap_or_default();
    let written = context.written_status(&uid).map(|(status, _)| status);
    written.or_else(|| set.status.clone()).unwrap_or_default()
}

/// Writes the status if it differs from `before`. At most one is written each second: returns the time to wait otherwise.
/// A problem that is new is an event, too.
///
/// # Errors
/// Fails if the request fails.
pub(crate) async fn write(
    context: &Context,
    set: &CloneSet,
    before: &CloneSetStatus,
    status: CloneSetStatus,
) -> Result<Option<Duration>, SetError> {
    let uid = set.uid().unwrap_or_default();
    if status == *before && set.status.is_some() {
        return Ok(None);
    }
    if let Some((_, at)) = context.written_status(&uid)
        && let left = INTERVAL.saturating_sub(at.elapsed())
        && !left.is_zero()
    {
        return Ok(Some(left));
    }
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let api: Api<CloneSet> = Api::namespaced(context.client.clone(), &namespace);
    let mut body = json!({"metadata": {"uid": uid}, "status": status});
    // A list that is left out would stay as it is stored.
    body["status"]["conditions"] = json!(status.conditions);
    let patch = Patch::Merge(body);
    let params = PatchParams::default();
    let request = api.patch_status(&name, &params, &patch);
    call("write the status of CloneSet", &format!("{namespace}/{name}"), request).await?;
    report::past_deadline(context, set, before, &status);
    context.remember(&uid, |memory| memory.status = Some((status, Instant::now())));
    Ok(None)
}
