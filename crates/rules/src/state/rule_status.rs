//! The status of a PodTransitionRule.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{PodTransitionRuleStatus, RuleState};
use podward_core::keys::POST_CHECK_REJECTION;
use podward_core::rules::{Grants, RuleReport};

use super::rule_record::RuleRecord;
use super::webhook_states;

/// The only condition that is written.
const ACCEPTED: &str = "Accepted";
/// The longest message of a condition, in bytes.
const MESSAGE_LIMIT: usize = 1024;

/// Returns the new status, which stays below 256 KiB of JSON because grants, names, details and states of webhooks each
/// have a limit. Returns `None` if it equals the stored one, or the object can't be read. `holder` becomes the holder
/// of the grants; it is `None` if this controller does not know the pods as the last writer of the grants did.
pub(crate) fn compose_status(
    record: &RuleRecord,
    grants: &Arc<Grants>,
    report: RuleReport,
    rule_states: Vec<RuleState>,
    holder: Option<&str>,
) -> Option<PodTransitionRuleStatus> {
    let object = record.object.as_ref()?;
    let stored = &record.status;
    let next = PodTransitionRuleStatus {
        update_time: stored.update_time.clone(),
        observed_generation: Some(record.generation),
        targets: report.targets,
        target_count: Some(report.target_count),
        waiting_count: Some(report.waiting_count),
        rule_states: webhook_states::fitting(rule_states),
        details: report.details,
        grants: grants.grants().to_vec(),
        holder: grants.holder().to_owned(),
        // Annotations change without a new generation.
        conditions: match (stored.observed_generation == Some(record.generation), &stored.conditions[..]) {
            (true, [ours])
                if ours.type_ == ACCEPTED
                    && ours.status == "True"
                    && !object.annotations().contains_key(POST_CHECK_REJECTION) =>
            {
                vec![ours.clone()]
            }
            _ => vec![accepted(object, stored)],
        },
    };
    (next != **stored).then(|| PodTransitionRuleStatus {
        update_time: Some(Time(Timestamp::now())),
        holder: holder.map_or_else(|| next.holder.clone(), ToOwned::to_owned),
        ..next
    })
}

/// Returns the stored status with these states of webhooks; `None` if that has them, or the object can't be read.
/// `holder` becomes the holder of the grants: this controller, which knows the pods as the last writer of the grants
/// did.
pub(crate) fn with_rule_states(
    record: &RuleRecord,
    rule_states: Vec<RuleState>,
    holder: &str,
) -> Option<PodTransitionRuleStatus> {
    let (rule_states, stored) = (webhook_states::fitting(rule_states), &record.status);
    (record.object.is_some() && rule_states != stored.rule_states).then(|| PodTransitionRuleStatus {
        update_time: Some(Time(Timestamp::now())),
        rule_states,
        holder: holder.to_owned(),
        ..(**stored).clone()
    })
}

/// Returns the condition that says whether the rules are valid.
fn accepted(object: &PodTransitionRule, stored: &PodTransitionRuleStatus) -> Condition {
    let errors = object.check().errors;
    let (status, reason, mut message) = match errors.is_empty() {
        true => ("True", "Valid", String::new()),
        false => {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            (
                "False",
                "Invalid",
                format!("invalid rules refuse every pod that they apply to: {}", texts.join("; ")),
            )
        }
    };
    if message.len() > MESSAGE_LIMIT {
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
    }
    let before = stored.conditions.iter().find(|condition| condition.type_ == ACCEPTED);
    let since =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    Condition {
        type_: ACCEPTED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: object.metadata.generation,
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
    }
}
