//! The status of a rule object: what is to stand in it, and its writes.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{PodTransitionRuleStatus, RuleState};
use podward_core::keys::POST_CHECK_REJECTION;
use podward_core::rules::{Ledger, Report};
use serde_json::{Map, Value, json};

use super::fresh::DEADLINE;
use super::state::Record;
use super::states;

/// Fields of the status. Those that aren't written any more are to go.
const FIELDS: [&str; 10] = [
    "conditions",
    "details",
    "grants",
    "holder",
    "observedGeneration",
    "ruleStates",
    "targetCount",
    "targets",
    "updateTime",
    "waitingCount",
];
/// The condition that is written; there are no others.
const ACCEPTED: &str = "Accepted";
/// A message of a condition may have so many bytes.
const MESSAGE_LIMIT: usize = 1024;

/// What has become of a write.
pub(super) enum Stored {
    /// It is stored: this is the object now.
    Yes(Box<PodTransitionRule>),
    /// Somebody else has written the object of this name since it was read.
    Lost(String),
    /// It isn't, or nobody knows: the object's name, and why.
    No(String, String),
}

/// The new status, which has less than 256 KiB as JSON: ledger, names, details and states of webhooks are bounded, each by itself. `None` when it says the same as the stored one, or the object can't be read. `holder` is who decides, if he knows the
/// pods as the ledger's last writer did: then he is its holder from now on.
pub(super) fn compose(
    record: &Record,
    ledger: &Arc<Ledger>,
    report: Report,
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
        rule_states: states::fitting(rule_states),
        details: report.details,
        grants: ledger.grants().to_vec(),
        holder: ledger.holder().to_owned(),
        // An annotation changes without a new generation.
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

/// Whether the rules can be followed.
fn accepted(object: &PodTransitionRule, stored: &PodTransitionRuleStatus) -> Condition {
    let errors = object.check().errors;
    let (status, reason, mut message) = match errors.is_empty() {
        true => ("True", "Valid", String::new()),
        false => {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            (
                "False",
                "Invalid",
                format!("what can't be followed refuses every pod that it is for: {}", texts.join("; ")),
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

/// Writes the status, if the object still is what it was when that was decided.
pub(super) async fn write(client: &Client, record: &Record, status: &PodTransitionRuleStatus) -> Stored {
    let name = record.set.name.clone();
    let api: Api<PodTransitionRule> = Api::namespaced(client.clone(), &record.set.namespace);
    let written = match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => Map::new(),
        Err(error) => return Stored::No(name, error.to_string()),
    };
    let mut fields: Map<String, Value> =
        FIELDS.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
    fields.extend(written);
    let patch = json!({
        "metadata": {"uid": record.uid, "resourceVersion": record.version},
        "status": fields,
    });
    let params = PatchParams::default();
    let patch = Patch::Merge(&patch);
    match tokio::time::timeout(DEADLINE, api.patch_status(&name, &params, &patch)).await {
        Ok(Ok(object)) => Stored::Yes(Box::new(object)),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Stored::Lost(name),
        Ok(Err(error)) => Stored::No(name, error.to_string()),
        Err(_) => Stored::No(name, format!("no answer from the API server within {DEADLINE:?}")),
    }
}

/// The object as it is stored now, if there is one.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<PodTransitionRule>, String> {
    let api: Api<PodTransitionRule> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(DEADLINE, api.get_opt(name)).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer from the API server within {DEADLINE:?}")),
    }
}
