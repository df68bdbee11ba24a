//! Nodes of a test's own, and preemption on one of them.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use podward_core::keys;
use podward_e2e::{CONSUMER, Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficLoop, WAIT, await_condition, pods, within};
use serde_json::{Value, json};

use super::objects::{LONG, api_of, make, until_gone, until_preempted};

/// The taint that keeps other pods away, and the label that selects the test's own.
const OWN: &str = "podward.io/own";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("preemption_waits_for_its_victim", preemption_waits_for_its_victim)]
}

/// A node for the pods of one test.
pub(crate) struct OwnNode<'s> {
    fixture: &'s Fixture,
    pub(crate) name: String,
}

impl<'s> OwnNode<'s> {
    /// Creates a node with room for `cpus`. With a kubelet it is simulated. Without one, the test writes its status.
    pub(crate) async fn make(
        fixture: &'s Fixture,
        which: &str,
        cpus: u32,
        with_kubelet: bool,
    ) -> Result<Self> {
        let name = format!("{}-{which}", fixture.namespace());
        let room = json!({"cpu": cpus.to_string(), "memory": "1Ti", "pods": "100"});
        let annotations = if with_kubelet { json!({"kwok.x-k8s.io/node": "fake"}) } else { json!({}) };
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", OWN: fixture.namespace()},
                "annotations": annotations,
            },
            "spec": {"taints": [{"key": OWN, "value": fixture.namespace(), "effect": "NoSchedule"}]},
            "status": {"allocatable": room, "capacity": room},
        });
        make(fixture, node).await?;
        Ok(Self { fixture, name })
    }

    /// Returns what the `spec` of a pod needs to be scheduled to one of the test's nodes.
    pub(crate) fn place(&self, spec: &mut Value) {
        spec["nodeSelector"] = json!({OWN: self.fixture.namespace()});
        spec["tolerations"] = json!([{"key": OWN, "operator": "Exists"}]);
    }

    /// Sets the node's condition (`True`, `False`, `Unknown`) and the time of its last change.
    pub(crate) async fn report(&self, ready: &str, since: &str) -> Result<()> {
        self.report_all(&[("Ready", ready, "Test", "")], since).await
    }

    /// Sets the node's conditions (type, status, reason, message) and the time of their last change.
    pub(crate) async fn report_all(
        &self,
        conditions: &[(&str, &str, &str, &str)],
        since: &str,
    ) -> Result<()> {
        let conditions = conditions.iter().map(|(name, status, reason, message)| {
            json!({
                "type": name, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since, "lastHeartbeatTime": since,
            })
        });
        let status = Patch::Merge(json!({"status": {"conditions": conditions.collect::<Vec<_>>()}}));
        let api = api_of(self.fixture, "v1", "Node");
        let patched = api.patch_status(&self.name, &PatchParams::default(), &status).await;
        patched.map(drop).with_context(|| format!("report the conditions of node {}", self.name))
    }

    /// Waits until the node has a taint with this key, which the control plane derives from its conditions.
    pub(crate) async fn until_tainted(&self, key: &str) -> Result<()> {
        let is_tainted = |node: Option<&Node>| {
            let spec = node.and_then(|node| node.spec.as_ref());
            spec.and_then(|spec| spec.taints.as_ref())
                .is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
        };
        let waited = await_condition(Api::all(self.fixture.client()), &self.name, is_tainted);
        within(WAIT, || format!("the taint {key} of node {}", self.name), waited).await.map(drop)
    }

    /// Deletes the node. A failed test leaves it until the end of the test cluster.
    pub(crate) async fn remove(self) -> Result<()> {
        let removed = api_of(self.fixture, "v1", "Node").delete(&self.name, &DeleteParams::default()).await;
        removed.map(drop).with_context(|| format!("delete node {}", self.name))
    }
}

/// The scheduler's victim leaves service first. Then the pod with the higher priority gets its place.
async fn preemption_waits_for_its_victim(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let node = OwnNode::make(&fixture, "a", 1, true).await?;
    let class = format!("{}-high", fixture.namespace());
    let priority = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
    });
    make(&fixture, priority).await?;
    let create = async |name: &str, class: Option<&str>| -> Result<Pod> {
        let mut spec = pods::server_spec(&fixture.images().v1);
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
        Ok(fixture.api().create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
    };
    create("low", None).await?;
    fixture.until_available("low").await?;
    traffic.set_behaviour_for("low", TrafficBehaviour::NOT_DRAINED);
    create("high", Some(&class)).await?;
    until_preempted(&fixture, "low", "high").await?;
    traffic.set_behaviour_for("low", TrafficBehaviour::PROMPT);
    until_gone(&fixture, "low").await?;
    fixture.feed().until_within(LONG, "high", "it is available", pods::is_available).await?;
    // On a busy machine Podward may have deleted it when kubectl asks again.
    fixture.kubectl(&["delete", "pod", "high", "--ignore-not-found"]).await?.succeeded()?;
    until_gone(&fixture, "high").await?;
    api_of(&fixture, "scheduling.k8s.io/v1", "PriorityClass")
        .delete(&class, &DeleteParams::default())
        .await?;
    node.remove().await
}
