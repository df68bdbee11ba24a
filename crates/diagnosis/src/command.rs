//! The commands that causes name as the next step.

use k8s_openapi::api::core::v1::Pod;

/// Returns the workload that people change to change the pod, such as `deployment/web`. A ReplicaSet of a Deployment is
/// named after it and the hash of its template.
#[must_use]
pub fn owner(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let labels = pod.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get("pod-template-hash"));
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    match (owner.kind.as_str(), deployment) {
        ("ReplicaSet", Some(deployment)) => Some(format!("deployment/{deployment}")),
        (kind, _) => Some(format!("{}/{}", kind.to_lowercase(), owner.name)),
    }
}

/// The commands for one pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commands<'p>(pub(crate) &'p Pod);

impl Commands<'_> {
    pub(crate) fn namespace(&self) -> &str {
        self.0.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    /// `kubectl -n NAMESPACE REST`.
    pub(crate) fn kubectl(&self, rest: &str) -> String {
        format!("kubectl -n {} {rest}", self.namespace())
    }

    pub(crate) fn describe(&self) -> String {
        self.kubectl(&format!("describe pod {}", self.name()))
    }

    /// The command that edits what creates the pod.
    pub(crate) fn edit(&self) -> String {
        match owner(self.0) {
            Some(owner) => self.kubectl(&format!("edit {owner}")),
            None => self.describe(),
        }
    }

    /// The log of a container, of its last run if `previous`.
    pub(crate) fn logs(&self, container: &str, previous: bool) -> String {
        let previous = if previous { " --previous" } else { "" };
        self.kubectl(&format!("logs {} -c {container}{previous}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_deployment_of_a_pod_is_named() {
        let pod = |kind: &str, name: &str, hash: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {
                "labels": {"pod-template-hash": hash},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}],
            }}))
            .unwrap()
        };
        assert_eq!(owner(&pod("ReplicaSet", "web-5d9", "5d9")).as_deref(), Some("deployment/web"));
        assert_eq!(owner(&pod("ReplicaSet", "web", "5d9")).as_deref(), Some("replicaset/web"));
        assert_eq!(owner(&pod("StatefulSet", "db", "")).as_deref(), Some("statefulset/db"));
        assert_eq!(owner(&Pod::default()), None);
    }
}
