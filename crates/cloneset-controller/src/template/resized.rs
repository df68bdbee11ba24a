//! Whether the kubelet has changed the resources of the containers of a pod.

use k8s_openapi::api::core::v1::PodCondition;

use super::resources::Resources;
use crate::pod::{Container, Pod};

/// The kubelet has put the resize off, or refuses it.
const PENDING: &str = "PodResizePending";
/// The kubelet resizes the pod.
const IN_PROGRESS: &str = "PodResizeInProgress";

/// Returns why the kubelet does not resize the pod, as a text for people. `None` if it does, or has done so.
pub(super) fn refused(pod: &Pod) -> Option<String> {
    let has_failed = |it: &&PodCondition| it.type_ == IN_PROGRESS && it.reason.as_deref() == Some("Error");
    let refusal = resizes(pod).find(|it| it.type_ == PENDING || has_failed(it))?;
    Some(format!(
        "{}; request less, or delete the pod, so that the one that replaces it can get another node",
        words(refusal)
    ))
}

/// Returns what is missing until all containers have the resources in the spec, as a text for people. `None` if they
/// have.
pub(super) fn missing(pod: &Pod) -> Option<String> {
    if let Some(condition) = resizes(pod).next() {
        return Some(words(condition));
    }
    let waiting = pod.containers().iter().find(|it| !has_resources(pod, it))?;
    Some(format!("the container {} does not have its new resources yet", waiting.name))
}

/// Returns the conditions of a resize that has not ended.
fn resizes(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    let is_resize = |it: &&PodCondition| [PENDING, IN_PROGRESS].contains(&it.type_.as_str());
    pod.conditions().iter().filter(|it| it.status == "True").filter(is_resize)
}

fn words(condition: &PodCondition) -> String {
    let words = [Some(condition.type_.as_str()), condition.reason.as_deref(), condition.message.as_deref()];
    let words: Vec<_> = words.into_iter().flatten().filter(|it| !it.is_empty()).collect();
    format!("new resources: {}", words.join(": "))
}

fn has_resources(pod: &Pod, container: &Container) -> bool {
    let wanted = container.resources.as_ref().map(Resources::of).unwrap_or_default().resizable();
    let status = pod.container_status(&container.name);
    let stored = match status.and_then(|it| it.resources.as_ref()) {
        Some(resources) => Resources::of(resources),
        None => {
            // A status without resources can still contain the requests.
            let allocated = status.and_then(|it| it.allocated_resources.as_ref()).into_iter().flatten();
            let requests = allocated.map(|(name, it)| (name.clone(), it.0.clone())).collect();
            Resources { limits: wanted.limits.clone(), requests }
        }
    };
    wanted.without(&stored).is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        let spec = json!({"containers": [{"name": "app", "resources": {
            "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}, "limits": {"cpu": "2"},
        }}]});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap()
    }

    fn missing_in(status: Value) -> Option<String> {
        missing(&pod(status))
    }

    fn container(fields: &Value) -> Value {
        let mut container = json!({
            "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        });
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!([container])
    }

    #[test]
    fn the_status_has_the_resources() {
        let waiting = Some("the container app does not have its new resources yet".to_owned());
        assert_eq!(missing_in(json!({})), waiting);
        let new = json!({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": "2"}});
        let old = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}});
        assert_eq!(missing_in(json!({"containerStatuses": container(&json!({"resources": new}))})), None);
        assert_eq!(missing_in(json!({"containerStatuses": container(&json!({"resources": old}))})), waiting);
        let allocated = json!({"allocatedResources": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(missing_in(json!({"containerStatuses": container(&allocated)})), None);
        let allocated = json!({"allocatedResources": {"cpu": "1", "memory": "2Gi"}});
        assert_eq!(missing_in(json!({"containerStatuses": container(&allocated)})), waiting);
        assert_eq!(missing(&Pod::default()), None);
    }

    #[test]
    fn a_condition_says_why() {
        let status = |kind: &str, reason: &str| {
            let message = if reason.is_empty() { "" } else { "no cpu" };
            let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
            json!({"conditions": [condition]})
        };
        let advice = "request less, or delete the pod, so that the one that replaces it can get another node";
        for (kind, reason, expected) in [
            ("PodResizePending", "Infeasible", "new resources: PodResizePending: Infeasible: no cpu"),
            ("PodResizePending", "Deferred", "new resources: PodResizePending: Deferred: no cpu"),
            ("PodResizeInProgress", "Error", "new resources: PodResizeInProgress: Error: no cpu"),
        ] {
            assert_eq!(missing_in(status(kind, reason)).as_deref(), Some(expected));
            assert_eq!(refused(&pod(status(kind, reason))), Some(format!("{expected}; {advice}")));
        }
        let runs = status("PodResizeInProgress", "");
        assert_eq!(missing_in(runs.clone()).as_deref(), Some("new resources: PodResizeInProgress"));
        assert_eq!(refused(&pod(runs)), None);
    }
}
