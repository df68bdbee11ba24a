//! Pods that have ended, and pods of a node that is lost: their objects remain.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use podward_core::{ConditionStatus, keys};
use podward_e2e::{Fixture, Test};
use podward_registries::Instance;
use podward_support::pods;
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::{Value, json};

use super::bound::{Bound, labels};
use crate::deletion::own_nodes::OwnNode;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_of_a_lost_node_and_of_finished_pods", ended)]
}

/// The test acts as the kubelet of the node, and as the controller that marks the pods of a silent node.
async fn ended(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    // Of four instances.
    let limit = json!({"removalLimitPercent": 25});
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], limit).await?;
    let node = OwnNode::make(&fixture, "lost", 100, false).await?;
    node.report("True", &ago(0)?).await?;
    for (number, name) in ["lost", "free", "done", "kept"].into_iter().enumerate() {
        let labels = if name == "free" { json!({"app": "web"}) } else { labels() };
        create(&fixture, &node, name, &labels, &format!("192.0.2.{}", number + 1)).await?;
    }
    let pods_of = |found: &[Instance]| -> Vec<String> {
        let mut names: Vec<String> = found
            .iter()
            .filter(|instance| instance.in_service)
            .filter_map(|instance| Some(instance.owner()?.pod))
            .collect();
        names.sort();
        names
    };
    bound.until("all pods are in service", |found| pods_of(found).len() == 4).await?;

    // It has ended, and the object remains.
    set_status(&fixture, "done", json!({"phase": "Succeeded"})).await?;
    bound.until("the finished pod is gone", |found| pods_of(found) == ["free", "kept", "lost"]).await?;
    ensure!(fixture.feed().get("done").is_some(), "the object is gone");

    // The node is silent for two minutes: longer than the limit of one.
    node.report("Unknown", &ago(120)?).await?;
    set_status(&fixture, "lost", json!({"conditions": silent()?})).await?;
    let found = bound.until("the pod of the lost node is gone", |found| found.len() == 2).await?;
    ensure!(pods_of(&found) == ["free", "kept"], "{found:?}");
    let pod = fixture.feed().get("lost").context("the object is gone")?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "the pod is being deleted");
    let said = fixture.until_event("web", "NodesLost").await?;
    ensure!(said.contains("one of them is lost"), "{said}");
    // Another one within a minute is more than the limit.
    set_status(&fixture, "free", json!({"conditions": silent()?})).await?;
    let message = bound.until_condition("Synchronized", "False").await?;
    ensure!(pods_of(&bound.instances(0).await?) == ["free", "kept"], "the limit did not hold: {message}");

    // The node is back.
    node.report("True", &ago(0)?).await?;
    for name in ["free", "lost"] {
        let ready =
            json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(0)?}]});
        set_status(&fixture, name, ready).await?;
    }
    bound.until("both are in service", |found| pods_of(found) == ["free", "kept", "lost"]).await?;
    bound.end().await?;
    fixture.ends_in_the_middle();
    for name in ["lost", "free", "done", "kept"] {
        fixture.kubectl(&["delete", "pod", name, "--grace-period=0", "--force"]).await?;
    }
    node.remove().await
}

/// The conditions of a pod whose node has been silent for two minutes.
fn silent() -> Result<Value> {
    let condition = |name: &str, status: &str| -> Result<Value> {
        Ok(json!({"type": name, "status": status, "lastTransitionTime": ago(120)?}))
    };
    let gate = condition(keys::SERVICE_READY_GATE, "True")?;
    Ok(json!([condition("Ready", "False")?, condition("ContainersReady", "True")?, gate]))
}

async fn set_status(fixture: &Fixture, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Strategic(json!({"status": status}));
    let patched = fixture.api().patch_status(name, &PatchParams::default(), &patch).await;
    patched.map(drop).with_context(|| format!("write the status of pod {name}"))
}

/// Creates a pod on the node that is Ready.
async fn create(fixture: &Fixture, node: &OwnNode<'_>, name: &str, labels: &Value, ip: &str) -> Result<()> {
    let mut spec = pods::server_spec(&fixture.images().v1);
    node.place(&mut spec);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec,
    });
    let pod = serde_json::from_value(pod)?;
    fixture.api().create(&PostParams::default(), &pod).await.context("make a pod")?;
    let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    fixture.feed().until(name, "it has a node", is_bound).await?;
    let ready = json!({"type": "ContainersReady", "status": "True", "lastTransitionTime": ago(0)?});
    let status = json!({
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready],
    });
    set_status(fixture, name, status).await?;
    let is_controlled = labels.get(keys::CONTROL_LABEL).is_some();
    if is_controlled {
        let gate_is_on =
            |pod: &Pod| pods::condition(pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::True);
        fixture.feed().until(name, "its gate is on", gate_is_on).await?;
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(0)?}]});
    set_status(fixture, name, ready).await?;
    if is_controlled {
        fixture.until_available(name).await?;
    }
    Ok(())
}

/// Returns the time that many seconds ago.
fn ago(seconds: u64) -> Result<String> {
    let then = SystemTime::now().checked_sub(Duration::from_secs(seconds)).context("the clock is wrong")?;
    Ok(jiff::Timestamp::try_from(then)?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
