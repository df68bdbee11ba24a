//! Versions of a pod.

use super::CachedPod;

impl CachedPod {
    /// Returns the resource version, empty if the pod has none.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Returns the resource version as a number, or `None` if it cannot be read. Resource versions of one resource are
    /// comparable as numbers (Kubernetes API concepts, "Resource versions").
    #[must_use]
    pub fn version_number(&self) -> Option<u64> {
        self.resource_version().parse().ok()
    }

    /// Returns true if `self` was stored after `other`. An unreadable version counts as 0.
    #[must_use]
    pub fn is_newer_than(&self, other: &CachedPod) -> bool {
        self.version_number().unwrap_or_default() > other.version_number().unwrap_or_default()
    }

    /// Returns true if `self` and `other`, two versions of a pod, differ in nothing that is kept of a pod, except the
    /// resource version. Kubelets often write what is not kept, such as the times of probes and the state of containers.
    #[must_use]
    pub fn says_the_same_as(&self, other: &CachedPod) -> bool {
        let mut metadata = other.metadata.clone();
        metadata.resource_version.clone_from(&self.metadata.resource_version);
        self.metadata == metadata && self.spec == other.spec && self.status == other.status
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn versions_that_differ_in_what_is_not_kept_say_the_same() {
        let labels = || json!({"app": "web"});
        let pod = |version: &str, labels: Value, ready: &str, probed: &str| -> CachedPod {
            let condition = json!({"type": "Ready", "status": ready, "lastProbeTime": probed});
            let metadata = json!({"name": "web", "uid": "u", "resourceVersion": version, "labels": labels});
            serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": [condition]}}))
                .unwrap()
        };
        let known = pod("7", labels(), "True", "2026-01-01T10:00:00Z");
        assert!(known.says_the_same_as(&pod("8", labels(), "True", "2026-01-01T10:00:10Z")));
        assert!(!known.says_the_same_as(&pod("8", labels(), "False", "2026-01-01T10:00:00Z")));
        assert!(!known.says_the_same_as(&pod("8", json!({}), "True", "2026-01-01T10:00:00Z")));
    }
}
