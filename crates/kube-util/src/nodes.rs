//! The nodes of the cluster: whether each one is Ready, and since when it is not.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as corev1;
use kube::api::ObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use podward_core::UnixNanos;
use podward_core::deletion::hold::NodeState;
use serde::{Deserialize, Deserializer};

use crate::watched::{Watch, Watched};

/// Watches the nodes. `changed` is called after every change, with the states of all nodes.
pub fn follow(
    client: Client,
    watch: Watch,
    changed: impl FnMut(&HashMap<String, NodeState>) + Send + 'static,
) -> Watched<NodeState> {
    let nodes: Api<SlimNode> = Api::all(client);
    let begin = move || watcher(nodes.clone(), watcher::Config::default());
    Watched::keep(watch, begin, |node: SlimNode| Some(node.state()), changed)
}

/// The name of a node, its Ready condition, and whether it is cordoned. A complete node is about a hundred times larger, mainly because of its
/// list of images.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = corev1::Node)]
pub struct SlimNode {
    #[serde(default, deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    last_transition_time: Option<String>,
}

impl SlimNode {
    /// Returns whether the node is cordoned, as by `kubectl drain`.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.spec.unschedulable == Some(true)
    }

    /// Returns whether the node is Ready, and since when it is not.
    #[must_use]
    pub fn state(&self) -> NodeState {
        let ready = self.status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        match ready {
            Some(ready) if ready.status == "True" => NodeState::Ready,
            Some(ready) => ready
                .last_transition_time
                .as_deref()
                .and_then(UnixNanos::parse)
                .map_or(NodeState::Unknown, NodeState::NotReadySince),
            // The kubelet has not reported yet.
            None => NodeState::Unknown,
        }
    }
}

fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        name: Option<String>,
        resource_version: Option<String>,
    }

    let Slim { name, resource_version } = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta { name, resource_version, ..ObjectMeta::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_ready_only_if_its_condition_is_true() {
        let node = |conditions| -> SlimNode {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        let ready = |status| json!([{"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:00:07Z"}]);
        assert_eq!(node(ready("True")).state(), NodeState::Ready);
        for status in ["False", "Unknown"] {
            assert_eq!(node(ready(status)).state(), NodeState::NotReadySince(UnixNanos(7_000_000_000)));
        }
        assert_eq!(node(json!([{"type": "Ready", "status": "False"}])).state(), NodeState::Unknown);
        assert_eq!(node(json!(null)).state(), NodeState::Unknown);
    }
}
