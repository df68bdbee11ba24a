//! The pods that a set has deleted by its own decision. Their claims go with them; those of pods that others have deleted
//! stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use podward_core::cloneset::keys::{DELETED_BY_OTHERS, SPECIFIED_DELETE};
use podward_core::deletion::request::DeletionRequest;
use podward_core::keys::DELETION_REQUEST;

use crate::observe::is_active;
use crate::pod::Pod;
use crate::template::id;

/// The identities of the pods that a set has deleted. They are forgotten when the process ends: their claims are then kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnDeletions {
    ids: BTreeSet<String>,
}

impl OwnDeletions {
    /// Adds a pod that the set has deleted, unless it has done so for others.
    pub(crate) fn add(&mut self, pod: &Pod) {
        let is_for_others = pod.labels().get(SPECIFIED_DELETE).is_some_and(|it| it == DELETED_BY_OTHERS);
        self.ids.extend(id(pod.labels()).filter(|_| !is_for_others).map(str::to_owned));
    }

    /// Adds the pods whose deletion Podward holds or has carried out for the set, which is `user`, and forgets those of
    /// which it was cancelled.
    pub(crate) fn observe(&mut self, pods: &[Arc<Pod>], user: Option<&str>) {
        for pod in pods {
            let Some(id) = id(pod.labels()) else { continue };
            let is_own = user.is_some() && requester(pod).as_deref() == user;
            match is_own {
                true => drop(self.ids.insert(id.to_owned())),
                false if is_active(pod) => drop(self.ids.remove(id)),
                false => {}
            }
        }
    }

    /// Forgets the others.
    pub(crate) fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        self.ids.retain(|id| stays(id));
    }

    /// Returns true if the set has deleted the pod with this identity.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }
}

/// Returns who has requested the deletion of the pod that Podward holds. `None` if it holds none.
pub(crate) fn requester(pod: &Pod) -> Option<String> {
    let request = DeletionRequest::parse(pod.annotations().get(DELETION_REQUEST)?)?;
    Some(request.requested_by)
}

#[cfg(test)]
mod tests {
    use podward_core::UnixNanos;
    use podward_core::cloneset::keys::INSTANCE_ID;
    use podward_core::deletion::request::DeletionKind;
    use serde_json::{Value, json};

    use super::*;

    const SET: &str = "system:serviceaccount:podward-system:cloneset-controller";

    fn pod(id: &str, change: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": format!("web-{id}"), "labels": {INSTANCE_ID: id}, "annotations": {}}});
        for (path, value) in change.as_object().into_iter().flatten() {
            pod["metadata"][path] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn requested(by: &str) -> Value {
        let request = DeletionRequest::new(DeletionKind::Delete, by, UnixNanos(7)).to_text();
        json!({DELETION_REQUEST: request})
    }

    #[test]
    fn what_the_set_has_deleted_for_others_is_not_its_own() {
        let mut own = OwnDeletions::default();
        own.add(&pod("a", json!({})));
        own.add(&pod("b", json!({"labels": {INSTANCE_ID: "b", SPECIFIED_DELETE: "true"}})));
        own.add(&pod("c", json!({"labels": {INSTANCE_ID: "c", SPECIFIED_DELETE: DELETED_BY_OTHERS}})));
        assert!(own.contains("a") && own.contains("b") && !own.contains("c"), "{own:?}");
        own.retain(|id| id == "a");
        assert!(own.contains("a") && !own.contains("b"));
    }

    #[test]
    fn a_held_deletion_is_that_of_its_requester() {
        let ends = "2026-01-02T03:04:05Z";
        let mut own = OwnDeletions::default();
        let pods = [
            pod("held", json!({"annotations": requested(SET)})),
            pod("ends", json!({"annotations": requested(SET), "deletionTimestamp": ends})),
            pod("jane", json!({"annotations": requested("jane"), "deletionTimestamp": ends})),
            pod("gone", json!({"deletionTimestamp": ends})),
        ]
        .map(Arc::new);
        own.add(&pods[3]);
        own.observe(&pods, Some(SET));
        let found = ["held", "ends", "jane", "gone"].map(|id| own.contains(id));
        assert_eq!(found, [true, true, false, true]);
        // Cancelled, or another pod has the identity.
        own.observe(&[pod("held", json!({})), pod("gone", json!({}))].map(Arc::new), Some(SET));
        let found = ["held", "ends", "jane", "gone"].map(|id| own.contains(id));
        assert_eq!(found, [false, true, false, false]);
        let mut unknown = OwnDeletions::default();
        unknown.observe(&pods, None);
        assert!(!unknown.contains("held") && !unknown.contains("gone"));
    }
}
