//! Rollouts of Deployments, as kubectl makes and reports them.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

/// Returns the patch of a workload, merge or strategic merge, that `kubectl rollout restart` makes.
#[must_use]
pub fn restart_patch() -> Value {
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": jiff::Timestamp::now().to_string()});
    json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})
}

/// Returns whether the Deployment is rolled out, by the rule of `kubectl rollout status`.
#[must_use]
pub fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_complete_when_only_new_pods_are_left_and_available() {
        let complete = |[generation, observed, total, updated, available]: [i64; 5]| {
            let deployment = json!({
                "metadata": {"generation": generation},
                "spec": {"replicas": 4, "selector": {}, "template": {}},
                "status": {
                    "observedGeneration": observed, "replicas": total, "updatedReplicas": updated,
                    "availableReplicas": available,
                },
            });
            is_rolled_out(&serde_json::from_value(deployment).unwrap())
        };
        assert!(complete([2, 2, 4, 4, 4]));
        assert!(!complete([2, 1, 4, 4, 4]), "the status is of the version before");
        assert!(!complete([2, 2, 5, 4, 4]), "an old pod is left");
        assert!(!complete([2, 2, 4, 4, 3]), "a new pod is not available");
        assert!(!complete([2, 2, 3, 3, 3]), "a new pod is missing");
    }
}
