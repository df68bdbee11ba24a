//! The conditions of a pod.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// A condition of a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) last_transition_time: Option<Time>,
}

/// Returns since when the conditions of a pod are such as only a lost node leaves them. `None` if they are not.
pub(super) fn silent_since<'c>(
    conditions: &'c [Condition],
    gates: impl Iterator<Item = &'c str>,
) -> Option<Timestamp> {
    let find = |name: &str| conditions.iter().find(|condition| condition.type_ == name);
    let ready = find("Ready").filter(|ready| ready.status != "True")?;
    let mut since = ready.last_transition_time.as_ref()?.0;
    for name in std::iter::once("ContainersReady").chain(gates) {
        let condition = find(name).filter(|condition| condition.status == "True")?;
        since = since.max(condition.last_transition_time.as_ref()?.0);
    }
    Some(since)
}
