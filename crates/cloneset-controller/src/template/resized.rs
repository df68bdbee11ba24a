//! Whether the kubelet has changed the resources of the containers of a pod.

use super::resources::Resources;
use crate::pod::{Container, Pod};

/// Returns what is missing until all containers have the resources in the spec, as a text for people. `None` if they
/// have.
pub(super) fn missing(pod: &Pod) -> Option<String> {
    let mut resizes = pod.conditions().iter().filter(|it| {
        it.status == "True" && ["PodResizePending", "PodResizeInProgress"].contains(&it.type_.as_str())
    });
    if let Some(condition) = resizes.next() {
        let words =
            [Some(condition.type_.as_str()), condition.reason.as_deref(), condition.message.as_deref()];
        let words: Vec<_> = words.into_iter().flatten().filter(|it| !it.is_empty()).collect();
        return Some(format!("new resources: {}", words.join(": ")));
    }
    let waiting = pod.containers().iter().find(|it| !has_resources(pod, it))?;
    Some(format!("the container {} does not have its new resources yet", waiting.name))
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

    fn missing_in(status: Value) -> Option<String> {
        let spec = json!({"containers": [{"name": "app", "resources": {
            "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}, "limits": {"cpu": "2"},
        }}]});
        missing(&serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap())
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
        let (kind, reason, message) = ("PodResizePending", "Infeasible", "no cpu");
        let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
        let expected = "new resources: PodResizePending: Infeasible: no cpu".to_owned();
        assert_eq!(missing_in(json!({"conditions": [condition]})), Some(expected));
    }
}
