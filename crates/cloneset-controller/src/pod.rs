//! A pod of a set as the cache keeps it: only what is read. The other fields are skipped during deserialization, so that
//! thousands of pods need little memory. It is never written back: writes are patches.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    self as corev1, ContainerState, EnvVar, PodCondition, PodReadinessGate, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use podward_core::cloneset::keys::{CONTAINER_PRIORITY, POD_READY, UPDATE_READY};
use serde::{Deserialize, Deserializer};

/// The conditions that are read.
const CONDITIONS: [&str; 5] = ["Ready", UPDATE_READY, POD_READY, "PodResizePending", "PodResizeInProgress"];

/// A pod of a set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = corev1::Pod)]
pub(crate) struct Pod {
    #[serde(deserialize_with = "without_managers")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<Box<str>>,
    #[serde(default, deserialize_with = "list")]
    readiness_gates: Box<[PodReadinessGate]>,
    #[serde(default, deserialize_with = "list")]
    containers: Box<[Container]>,
}

/// A container in the spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Container {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) image: Option<String>,
    #[serde(default)]
    pub(crate) resources: Option<ResourceRequirements>,
    /// Containers with a higher priority change first. 0 if it has none, or no number.
    #[serde(default, rename = "env", deserialize_with = "priority")]
    pub(crate) priority: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: Option<Box<str>>,
    #[serde(default, deserialize_with = "conditions")]
    conditions: Box<[PodCondition]>,
    #[serde(default, deserialize_with = "list")]
    container_statuses: Box<[ContainerStatus]>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) image: String,
    #[serde(default, rename = "imageID")]
    pub(crate) image_id: String,
    #[serde(default, rename = "containerID")]
    pub(crate) container_id: Option<String>,
    #[serde(default)]
    pub(crate) ready: bool,
    #[serde(default)]
    pub(crate) restart_count: i32,
    #[serde(default)]
    pub(crate) state: Option<Box<ContainerState>>,
    #[serde(default)]
    pub(crate) resources: Option<ResourceRequirements>,
    #[serde(default)]
    pub(crate) allocated_resources: Option<BTreeMap<String, Quantity>>,
}

impl Pod {
    /// Returns the name of the node. `None` if it has none.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// Returns the phase.
    pub(crate) fn phase(&self) -> Option<&str> {
        self.status.phase.as_deref()
    }

    /// Returns true if it has the readiness gate.
    pub(crate) fn has_gate(&self, kind: &str) -> bool {
        self.spec.readiness_gates.iter().any(|gate| gate.condition_type == kind)
    }

    /// Returns the conditions that are read: [`CONDITIONS`].
    pub(crate) fn conditions(&self) -> &[PodCondition] {
        &self.status.conditions
    }

    /// Returns the containers. Init containers are none.
    pub(crate) fn containers(&self) -> &[Container] {
        &self.spec.containers
    }

    /// Returns the container with this name.
    pub(crate) fn container(&self, name: &str) -> Option<&Container> {
        self.containers().iter().find(|container| container.name == name)
    }

    /// Returns the statuses of the containers.
    pub(crate) fn container_statuses(&self) -> &[ContainerStatus] {
        &self.status.container_statuses
    }

    /// Returns the status of the container with this name.
    pub(crate) fn container_status(&self, name: &str) -> Option<&ContainerStatus> {
        self.container_statuses().iter().find(|status| status.name == name)
    }
}

fn without_managers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = ObjectMeta::deserialize(deserializer)?;
    metadata.managed_fields = None;
    metadata.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    Ok(metadata)
}

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[PodCondition]>, D::Error> {
    let all = Option::<Vec<PodCondition>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(all.into_iter().filter(|condition| CONDITIONS.contains(&&*condition.type_)).collect())
}

/// Reads a list, of which null is the empty one. It has no room for more.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Box<[T]>, D::Error> {
    Ok(Option::<Box<[T]>>::deserialize(deserializer)?.unwrap_or_default())
}

fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let env = list::<D, EnvVar>(deserializer)?;
    let value = env.iter().find(|it| it.name == CONTAINER_PRIORITY).and_then(|it| it.value.as_deref());
    Ok(value.and_then(|it| it.trim().parse().ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_keeps_what_is_read() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"a": "b"}, "managedFields": [{"manager": "kubelet"}]},
            "spec": {
                "nodeName": "n", "readinessGates": [{"conditionType": "g"}], "volumes": [{"name": "v"}],
                "containers": [{
                    "name": "main", "image": "i", "resources": {"limits": {"cpu": "1"}}, "volumeMounts": null,
                    "env": [{"name": "PASSWORD", "value": "secret"}, {"name": CONTAINER_PRIORITY, "value": " 7"}],
                }, {"name": "other", "env": null}],
            },
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
                "containerStatuses": [{
                    "name": "main", "image": "i", "imageID": "x", "containerID": "c", "ready": true, "restartCount": 1,
                    "state": {"running": {}},
                }],
            },
        }))
        .unwrap();
        assert_eq!((pod.metadata.managed_fields.is_none(), pod.labels().len()), (true, 1));
        assert_eq!((pod.node_name(), pod.phase()), (Some("n"), Some("Running")));
        assert!(pod.has_gate("g") && !pod.has_gate("h") && pod.conditions().len() == 1);
        let main = pod.container("main").unwrap();
        assert_eq!((main.image.as_deref(), main.resources.is_some(), main.priority), (Some("i"), true, 7));
        assert_eq!(pod.container("other").map(|it| it.priority), Some(0));
        let status = pod.container_status("main").unwrap();
        assert_eq!((&*status.image_id, status.container_id.as_deref(), status.ready), ("x", Some("c"), true));
        assert!(status.restart_count == 1 && status.state.as_ref().is_some_and(|it| it.running.is_some()));
        let empty: Pod =
            serde_json::from_value(json!({"metadata": {}, "status": {"conditions": null}})).unwrap();
        assert_eq!(empty, Pod::default());
    }
}
