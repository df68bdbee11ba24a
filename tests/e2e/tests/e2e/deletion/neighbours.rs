//! Nodes of a test's own, and preemption on one.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use podward_core::keys;
use podward_e2e::{CONSUMER, Scene, Test};
use podward_support::{Behaviour, TrafficLoop, pods};
use serde_json::{Value, json};

use super::made::{LONG, api_of, make, until_gone, until_preempted};

/// The taint that keeps other pods away, and the label by which the test's own come.
const OWN: &str = "podward.io/own";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("preemption_waits_for_its_victim", preemption_waits_for_its_victim)]
}

/// A node for the pods of one test.
pub(super) struct OwnNode<'s> {
    scene: &'s Scene,
    pub(super) name: String,
}

impl<'s> OwnNode<'s> {
    /// Makes one with room for `cpus`, one of perhaps several. With a kubelet it is simulated; without, the test says how it is.
    pub(super) async fn make(scene: &'s Scene, which: &str, cpus: u32, with_kubelet: bool) -> Result<Self> {
        let name = format!("{}-{which}", scene.namespace());
        let room = json!({"cpu": cpus.to_string(), "memory": "1Ti", "pods": "100"});
        let annotations = if with_kubelet { json!({"kwok.x-k8s.io/node": "fake"}) } else { json!({}) };
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", OWN: scene.namespace()},
                "annotations": annotations,
            },
            "spec": {"taints": [{"key": OWN, "value": scene.namespace(), "effect": "NoSchedule"}]},
            "status": {"allocatable": room, "capacity": room},
        });
        make(scene, node).await?;
        Ok(Self { scene, name })
    }

    /// What the `spec` of a pod needs to get to one of the test's nodes.
    pub(super) fn place(&self, spec: &mut Value) {
        spec["nodeSelector"] = json!({OWN: self.scene.namespace()});
        spec["tolerations"] = json!([{"key": OWN, "operator": "Exists"}]);
    }

    /// Says since when the node is in this state (`True`, `False`, `Unknown`).
    pub(super) async fn report(&self, ready: &str, since: &str) -> Result<()> {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": "Test", "message": "",
            "lastTransitionTime": since, "lastHeartbeatTime": since,
        });
        let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let api = api_of(self.scene, "v1", "Node");
        let patched = api.patch_status(&self.name, &PatchParams::default(), &status).await;
        patched.map(drop).with_context(|| format!("report node {} as {ready}", self.name))
    }

    /// Takes it away. A test that fails leaves it to the end of the bed.
    pub(super) async fn remove(self) -> Result<()> {
        let removed = api_of(self.scene, "v1", "Node").delete(&self.name, &DeleteParams::default()).await;
        removed.map(drop).with_context(|| format!("delete node {}", self.name))
    }
}

/// The scheduler's victim leaves service first; then the pod with the higher priority gets its place.
async fn preemption_waits_for_its_victim(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let node = OwnNode::make(&scene, "a", 1, true).await?;
    let class = format!("{}-high", scene.namespace());
    let priority = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
    });
    make(&scene, priority).await?;
    let create = async |name: &str, class: Option<&str>| -> Result<Pod> {
        let mut spec = pods::server_spec(&scene.images().v1);
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": "800m"}});
        node.place(&mut spec);
        if let Some(class) = class {
            spec["priorityClassName"] = json!(class);
        }
        let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {
                "name": name,
                "labels": {keys::CONTROL_LABEL: keys::CONTROL_VALUE},
                "annotations": {keys::AVAILABLE_CONDITIONS: expected},
            },
        });
        Ok(scene.api().create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
    };
    create("low", None).await?;
    scene.until_available("low").await?;
    traffic.behave_towards("low", Behaviour::HOLDS);
    create("high", Some(&class)).await?;
    until_preempted(&scene, "low", "high").await?;
    traffic.behave_towards("low", Behaviour::PROMPT);
    until_gone(&scene, "low").await?;
    scene.feed().until_within(LONG, "high", "it is available", pods::is_available).await?;
    scene.kubectl(&["delete", "pod", "high"]).await?.succeeded()?;
    until_gone(&scene, "high").await?;
    api_of(&scene, "scheduling.k8s.io/v1", "PriorityClass").delete(&class, &DeleteParams::default()).await?;
    node.remove().await
}
