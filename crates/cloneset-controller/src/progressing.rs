//! The condition `Progressing`: whether an update goes on within `progressDeadlineSeconds`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use podward_api::clone_set::{CloneSetCondition, CloneSetStatus};

/// What the condition depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    /// `progressDeadlineSeconds`. `None`: there is no condition.
    pub(crate) deadline: Option<SignedDuration>,
    pub(crate) paused: bool,
    /// True if the spec keeps pods at an old revision.
    pub(crate) is_partial: bool,
    pub(crate) replicas: i32,
}

/// Returns the condition after `before`, for a status that is complete but for it, and when it changes by itself.
pub(crate) fn progressing(
    update: Update,
    before: &CloneSetStatus,
    status: &CloneSetStatus,
    now: Timestamp,
) -> (Option<CloneSetCondition>, Option<Timestamp>) {
    let Some(deadline) = update.deadline else { return (None, None) };
    let stored = before.conditions.iter().find(|condition| condition.type_ == CloneSetCondition::PROGRESSING);
    let rests = |reason: &str, message: &str| (Some(next(stored, "True", reason, message, now)), None);
    let all = status.replicas == update.replicas;
    if update.paused {
        return rests(CloneSetCondition::PAUSED, "spec.updateStrategy.paused is set");
    }
    if all && status.updated_available_replicas == update.replicas {
        return rests(
            CloneSetCondition::AVAILABLE,
            "all pods have the revision of the template and are available",
        );
    }
    if all && update.is_partial && status.updated_available_replicas >= status.expected_updated_replicas {
        return rests(
            CloneSetCondition::PARTITION_AVAILABLE,
            "all pods but those of spec.updateStrategy.partition have the revision of the template and are available",
        );
    }
    let running = stored.filter(|it| {
        matches!(&*it.reason, CloneSetCondition::UPDATED | CloneSetCondition::DEADLINE_EXCEEDED)
    });
    let since = running.and_then(|condition| condition.last_update_time.as_ref()).map(|time| time.0);
    let message = format!("pods get revision {}", status.update_revision.as_deref().unwrap_or_default());
    let restarted = || {
        let mut condition = next(stored, "True", CloneSetCondition::UPDATED, &message, now);
        condition.last_update_time = Some(Time(now));
        (Some(condition), now.checked_add(deadline).ok())
    };
    let Some(since) = since.filter(|_| !has_moved(before, status)) else { return restarted() };
    match since.checked_add(deadline) {
        Ok(end) if end <= now => {
            let message = format!(
                "no pod got revision {} or became available for {} s; see the events and conditions of its pods",
                status.update_revision.as_deref().unwrap_or_default(),
                deadline.as_secs()
            );
            let mut condition = next(stored, "False", CloneSetCondition::DEADLINE_EXCEEDED, &message, now);
            condition.last_update_time = Some(Time(since));
            (Some(condition), None)
        }
        end => (stored.cloned(), end.ok()),
    }
}

/// Returns true if pods were updated, became available or were deleted, or the template was changed.
fn has_moved(before: &CloneSetStatus, now: &CloneSetStatus) -> bool {
    before.update_revision != now.update_revision
        || now.updated_replicas > before.updated_replicas
        || now.updated_ready_replicas > before.updated_ready_replicas
        || now.updated_available_replicas > before.updated_available_replicas
        || now.replicas - now.updated_replicas < before.replicas - before.updated_replicas
}

fn next(
    stored: Option<&CloneSetCondition>,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> CloneSetCondition {
    let same = stored.filter(|it| it.status == status);
    let since = same.and_then(|it| it.last_transition_time.clone()).unwrap_or(Time(now));
    let written = same.filter(|it| it.reason == reason).and_then(|it| it.last_update_time.clone());
    CloneSetCondition {
        type_: CloneSetCondition::PROGRESSING.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Some(since),
        last_update_time: Some(written.unwrap_or(Time(now))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPDATE: Update = Update {
        deadline: Some(SignedDuration::from_secs(60)),
        paused: false,
        is_partial: false,
        replicas: 3,
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(updated: i32, available: i32) -> CloneSetStatus {
        CloneSetStatus {
            replicas: 3,
            updated_replicas: updated,
            updated_available_replicas: available,
            expected_updated_replicas: 3,
            update_revision: Some("web-2".to_owned()),
            ..CloneSetStatus::default()
        }
    }

    /// Returns the status with its condition, and when it changes by itself.
    #[track_caller]
    fn follow(
        update: Update,
        before: &CloneSetStatus,
        mut after: CloneSetStatus,
        now: i64,
    ) -> (CloneSetStatus, Option<i64>) {
        let (condition, wake) = progressing(update, before, &after, at(now));
        after.conditions.extend(condition);
        (after, wake.map(Timestamp::as_second))
    }

    fn reason(status: &CloneSetStatus) -> (&str, &str) {
        let condition = status.conditions.first().unwrap();
        (&condition.status, &condition.reason)
    }

    #[test]
    fn a_deadline_starts_again_with_each_step() {
        let (begun, wake) = follow(UPDATE, &CloneSetStatus::default(), status(1, 0), 0);
        assert_eq!((reason(&begun), wake), (("True", "CloneSetUpdated"), Some(60)));
        let (same, wake) = follow(UPDATE, &begun, status(1, 0), 30);
        assert_eq!((&same, wake), (&begun, Some(60)), "nothing is written at rest");
        let (moved, wake) = follow(UPDATE, &same, status(1, 1), 40);
        assert_eq!((reason(&moved), wake), (("True", "CloneSetUpdated"), Some(100)));
        let (late, wake) = follow(UPDATE, &moved, status(1, 1), 100);
        assert_eq!((reason(&late), wake), (("False", "ProgressDeadlineExceeded"), None));
        let (still, _) = follow(UPDATE, &late, status(1, 1), 500);
        assert_eq!(still, late, "nothing is written at rest");
        let (again, wake) = follow(UPDATE, &still, status(2, 1), 600);
        assert_eq!((reason(&again), wake), (("True", "CloneSetUpdated"), Some(660)));
        let (done, wake) = follow(UPDATE, &again, status(3, 3), 610);
        assert_eq!((reason(&done), wake), (("True", "CloneSetAvailable"), None));
        assert_eq!(follow(UPDATE, &done, status(3, 3), 900).0, done, "nothing is written at rest");
    }

    #[test]
    fn nothing_is_late_while_nothing_is_to_be_done() {
        let (begun, _) = follow(UPDATE, &CloneSetStatus::default(), status(1, 1), 0);
        let paused = Update { paused: true, ..UPDATE };
        assert_eq!(reason(&follow(paused, &begun, status(1, 1), 90).0), ("True", "CloneSetPaused"));
        let partial = Update { is_partial: true, ..UPDATE };
        let kept = CloneSetStatus { expected_updated_replicas: 1, ..status(1, 1) };
        assert_eq!(reason(&follow(partial, &begun, kept, 90).0), ("True", "ProgressPartitionAvailable"));
        let none = Update { deadline: None, ..UPDATE };
        assert_eq!(progressing(none, &begun, &status(1, 1), at(90)), (None, None));
    }
}
