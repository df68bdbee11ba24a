//! The cluster's nodes: which are Ready, and since when the others are not.

use std::borrow::Cow;
use std::collections::HashMap;

use k8s_openapi::api::core::v1 as corev1;
use kube::api::ObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use podward_core::UnixNanos;
use podward_core::hold::Node;
use serde::{Deserialize, Deserializer};

use crate::watched::{Watch, Watched};

/// Follows the nodes behind `client`; `changed` is told of every change, with all of them.
pub fn follow(
    client: Client,
    watch: Watch,
    changed: impl FnMut(&HashMap<String, Node>) + Send + 'static,
) -> Watched<Node> {
    let nodes: Api<SlimNode> = Api::all(client);
    let begin = move || watcher(nodes.clone(), watcher::Config::default());
    Watched::keep(watch, begin, |node: SlimNode| Some(node.standing()), changed)
}

/// A node's name and whether it is Ready. The lists of images alone make a whole one a hundred times larger.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimNode {
    #[serde(default, deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    last_transition_time: Option<String>,
}

impl SlimNode {
    /// Whether it is Ready, and since when not.
    #[must_use]
    pub fn standing(&self) -> Node {
        let ready = self.status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        match ready {
            Some(ready) if ready.status == "True" => Node::Ready,
            Some(ready) => ready
                .last_transition_time
                .as_deref()
                .and_then(UnixNanos::parse)
                .map_or(Node::Unknown, Node::NotReadySince),
            // Its kubelet has yet to report.
            None => Node::Unknown,
        }
    }
}

impl Resource for SlimNode {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        corev1::Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        corev1::Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        corev1::Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        corev1::Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
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
    fn only_a_ready_that_says_so_is_ready() {
        let node = |conditions| -> SlimNode {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        let ready = |status| json!([{"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:00:07Z"}]);
        assert_eq!(node(ready("True")).standing(), Node::Ready);
        for status in ["False", "Unknown"] {
            assert_eq!(node(ready(status)).standing(), Node::NotReadySince(UnixNanos(7_000_000_000)));
        }
        assert_eq!(node(json!([{"type": "Ready", "status": "False"}])).standing(), Node::Unknown);
        assert_eq!(node(json!(null)).standing(), Node::Unknown);
    }
}
