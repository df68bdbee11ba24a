//! The conditions of a pod.

use k8s_openapi::api::core::v1::PodCondition;
use podward_core::cloneset::{NotReadyKeys, keys};
use serde::{Deserialize, Serialize};

use crate::pod::Pod;

/// One who keeps a pod out of service, in the message of the condition `KruisePodReady`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotReadyKey {
    pub(crate) user_agent: String,
    pub(crate) key: String,
}

/// Returns a condition of the pod.
pub(crate) fn condition<'p>(pod: &'p Pod, kind: &str) -> Option<&'p PodCondition> {
    pod.conditions().iter().find(|condition| condition.type_ == kind)
}

/// Returns true if the condition is True, and `None` if there is none.
pub(crate) fn is_true(pod: &Pod, kind: &str) -> Option<bool> {
    condition(pod, kind).map(|condition| condition.status == "True")
}

/// Returns who keeps the pod out of service. A message that cannot be read names nobody.
pub(crate) fn not_ready_list(pod: &Pod) -> Option<Vec<NotReadyKey>> {
    let condition = condition(pod, keys::POD_READY)?;
    let list = condition.message.as_deref().and_then(|text| serde_json::from_str(text).ok());
    Some(list.unwrap_or_default())
}

/// Returns which hooks keep the pod out of service. `None` if the condition was never written.
pub(super) fn not_ready(pod: &Pod) -> Option<NotReadyKeys> {
    let list = not_ready_list(pod)?;
    let has = |key: &str| list.iter().any(|it| it.user_agent == keys::LIFECYCLE_AGENT && it.key == key);
    Some(NotReadyKeys {
        pre_delete: has(keys::PRE_DELETE_KEY),
        pre_update: has(keys::PRE_UPDATE_KEY),
        pre_normal: has(keys::PRE_NORMAL_KEY),
        post_update: has(keys::POST_UPDATE_KEY),
    })
}
