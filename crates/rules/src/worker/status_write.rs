//! Reads and writes of PodTransitionRules.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::PodTransitionRuleStatus;
use podward_runtime::retry::api_call;
use serde_json::{Map, Value, json};

use super::super::state::RuleRecord;

/// The fields of the status. A write removes those that it does not set.
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

/// The result of a write.
pub(super) enum StatusWrite {
    /// The status is stored, and this is the object.
    Stored(Box<PodTransitionRule>),
    /// Another writer has changed or removed the object since it was read: its name and UID.
    Conflict(String, String),
    /// The status is not stored, or that is unknown: the object's name, and the error.
    Failed(String, String),
}

/// Writes the status, if the object is unchanged since the decision.
pub(super) async fn write(
    client: &Client,
    record: &RuleRecord,
    status: &PodTransitionRuleStatus,
) -> StatusWrite {
    let name = record.set.name.clone();
    let api: Api<PodTransitionRule> = Api::namespaced(client.clone(), &record.set.namespace);
    let fields = match changes(&record.status, status) {
        Ok(fields) => fields,
        Err(error) => return StatusWrite::Failed(name, error.to_string()),
    };
    let patch = json!({
        "metadata": {"uid": record.uid, "resourceVersion": record.version},
        "status": fields,
    });
    let params = PatchParams::default();
    let patch = Patch::Merge(&patch);
    match api_call(api.patch_status(&name, &params, &patch)).await {
        Ok(object) => StatusWrite::Stored(Box::new(object)),
        Err(error) if error.is_not_found() || error.is_conflict() => {
            StatusWrite::Conflict(name, record.uid.clone())
        }
        Err(error) => StatusWrite::Failed(name, error.to_string()),
    }
}

/// Returns the fields of `next` that differ from the `stored` status. Most of a large status is names, which rarely change.
fn changes(
    stored: &PodTransitionRuleStatus,
    next: &PodTransitionRuleStatus,
) -> Result<Map<String, Value>, serde_json::Error> {
    let (mut before, mut after) = (serde_json::to_value(stored)?, serde_json::to_value(next)?);
    let fields =
        FIELDS.iter().map(|field| ((*field).to_owned(), before[*field].take(), after[*field].take()));
    Ok(fields.filter(|(_, before, after)| before != after).map(|(field, _, after)| (field, after)).collect())
}

/// Returns the stored object with this name and UID; `None` if there is none.
///
/// # Errors
/// When the API server fails or does not answer in time.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<Option<PodTransitionRule>, String> {
    let api: Api<PodTransitionRule> = Api::namespaced(client.clone(), namespace);
    let found = api_call(api.get_opt(name)).await.map_err(|error| error.to_string())?;
    Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(uid)))
}
