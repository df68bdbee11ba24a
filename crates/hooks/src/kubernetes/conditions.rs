//! The status that a LifecycleHook must have. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use podward_api::HookStatus;

use crate::questions::table::HookHealth;
use crate::registration::record::HookRecord;
use crate::registration::registered::HookConnection;

const ACCEPTED: &str = "Accepted";
const REACHABLE: &str = "Reachable";

/// True if a condition has another status than the stored one. Unknown does not count.
pub(crate) fn has_other_condition(
    record: &HookRecord,
    present: &HookStatus,
    health: Option<&HookHealth>,
) -> bool {
    let wanted = [Some(accepted(record, None)), reachability(record, health, is_new(record, present))];
    wanted.into_iter().flatten().filter(|(_, status, ..)| *status != "Unknown").any(|(type_, status, ..)| {
        !present.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status)
    })
}

fn is_new(record: &HookRecord, present: &HookStatus) -> bool {
    present.observed_generation != record.generation
}

/// Returns the status to write over `present`. Values that are not known yet stay as an earlier leader wrote them.
pub(crate) fn wanted_status(
    record: &HookRecord,
    present: &HookStatus,
    health: Option<&HookHealth>,
    matches_no_pod: Option<bool>,
    now: Timestamp,
) -> HookStatus {
    let reachable = health.and_then(|health| health.reachable);
    let mut conditions: Vec<Condition> = Vec::new();
    for wanted in
        [Some(accepted(record, matches_no_pod)), reachability(record, health, is_new(record, present))]
            .into_iter()
            .flatten()
    {
        let (type_, status, reason, message) = wanted;
        let before = present.conditions.iter().find(|condition| condition.type_ == type_);
        let since =
            before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
        conditions.push(Condition {
            last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
            message,
            observed_generation: record.generation,
            reason: reason.to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        });
    }
    let others = present
        .conditions
        .iter()
        .filter(|condition| !conditions.iter().any(|ours| ours.type_ == condition.type_));
    let others: Vec<Condition> = others.cloned().collect();
    conditions.extend(others);
    let latencies = health.and_then(|health| health.latencies);
    let last_answer = health.and_then(|health| health.last_answer);
    HookStatus {
        observed_generation: record.generation,
        conditions,
        last_answer_time: last_answer
            .map(|time| Time(whole_seconds(time)))
            .or_else(|| present.last_answer_time.clone()),
        calls_in_flight: health.map_or(0, |health| u32::try_from(health.calls_in_flight).unwrap_or(u32::MAX)),
        latency_p50_milliseconds: latencies.map(|(p50, _)| p50).or(present.latency_p50_milliseconds),
        latency_p99_milliseconds: latencies.map(|(_, p99)| p99).or(present.latency_p99_milliseconds),
        last_error: match reachable {
            Some(_) => health.and_then(|health| health.last_error.clone()),
            None => present.last_error.clone(),
        },
    }
}

type WantedCondition = (&'static str, &'static str, &'static str, String);

fn accepted(record: &HookRecord, matches_no_pod: Option<bool>) -> WantedCondition {
    match (&record.refused, matches_no_pod) {
        (Some(problem), _) => (ACCEPTED, "False", "Invalid", problem.clone()),
        (None, Some(true)) => {
            let message = "it is valid, but matches no pod now: no opted-in pod matches spec.podSelector in a namespace \
                           that matches spec.namespaceSelector";
            (ACCEPTED, "True", "MatchesNoPod", message.to_owned())
        }
        (None, _) => (ACCEPTED, "True", "Valid", String::new()),
    }
}

fn reachability(record: &HookRecord, health: Option<&HookHealth>, is_new: bool) -> Option<WantedCondition> {
    if let HookConnection::Invalid(_) = record.registered.connection {
        let message = "the hook is not called, because it is not valid";
        return Some((REACHABLE, "False", "NotAsked", message.to_owned()));
    }
    let error = || health.and_then(|health| health.last_error.clone()).unwrap_or_default();
    match health.and_then(|health| health.reachable) {
        Some(true) => Some((REACHABLE, "True", "Reached", String::new())),
        Some(false) => Some((REACHABLE, "False", "NotReached", error())),
        // Not tried yet: the result of an earlier leader stays if the hook has not changed.
        None if is_new || record.condition(REACHABLE).is_none() => {
            Some((REACHABLE, "Unknown", "NotTried", "Podward is connecting to the hook".to_owned()))
        }
        None => None,
    }
}

/// `metav1.Time` has whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
