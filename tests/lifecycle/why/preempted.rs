//! Pods of different priority, and others that the cluster deletes.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::api::EvictParams;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::asked::{create, delete, server, until_first_line, until_said};
use crate::deletion::own_nodes::OwnNode;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_a_pod_waits_for_its_preemption", preempts),
        Test::simulated("why_a_pod_does_not_preempt", does_not_preempt),
        Test::simulated("why_the_cluster_deletes_a_pod", deleted),
    ]
}

async fn class(fixture: &Fixture, policy: &str) -> Result<String> {
    let name = format!("{}-high", fixture.namespace());
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000,
        "preemptionPolicy": policy,
    });
    create(fixture, class).await?;
    Ok(name)
}

/// Creates a pod that needs most of the node. It takes two minutes to stop.
async fn large_pod(fixture: &Fixture, node: &OwnNode<'_>, name: &str, class: Option<&str>) -> Result<()> {
    let mut changes = json!({"terminationGracePeriodSeconds": 120});
    node.place(&mut changes);
    if let Some(class) = class {
        changes["priorityClassName"] = json!(class);
    }
    let spec: Value = server(fixture, changes, json!({"resources": {"requests": {"cpu": "800m"}}}));
    create(
        fixture,
        json!({
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "annotations": {"simulate.podward.io/stop-seconds": "120"}},
        }),
    )
    .await
}

/// The scheduler waits for its victim, which stops slowly.
async fn preempts(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "full", 1, true).await?;
    let class = class(&fixture, "PreemptLowerPriority").await?;
    large_pod(&fixture, &node, "low", None).await?;
    fixture.feed().until("low", "it is Ready", pods::is_ready).await?;
    large_pod(&fixture, &node, "high", Some(&class)).await?;
    let (namespace, name) = (fixture.namespace(), &node.name);
    let waits = format!(
        "pod {namespace}/high: waits on node {name} for pods of lower priority to end: {namespace}/low, killed in "
    );
    let said = until_first_line(&fixture, "high", &waits).await?;
    let next = format!("; next: kubectl -n {namespace} describe pod low");
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    let preempted = format!(
        "pod {namespace}/low: is stopping, preempted by the scheduler for a pod of higher priority: container server \
         handles SIGTERM, killed in "
    );
    until_said(&fixture, "low", &preempted, &["event Preempted: "]).await?;
    fixture.kubectl(&["delete", "pod", "low", "high", "--grace-period=0", "--force"]).await?.succeeded()?;
    delete(&fixture, "priorityclass", &class).await?;
    node.remove().await
}

/// A higher priority alone does not help.
async fn does_not_preempt(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "full", 1, true).await?;
    let class = class(&fixture, "Never").await?;
    large_pod(&fixture, &node, "low", None).await?;
    fixture.feed().until("low", "it is Ready", pods::is_ready).await?;
    large_pod(&fixture, &node, "high", Some(&class)).await?;
    let words = format!(
        "requests 0.8 CPU, and no node has that free; node {} has the most, 0.2 CPU, and it may not preempt pods of \
         lower priority (preemptionPolicy: Never)",
        node.name
    );
    until_first_line(&fixture, "high", &words).await?;
    fixture.kubectl(&["delete", "pod", "low", "high", "--grace-period=0", "--force"]).await?.succeeded()?;
    delete(&fixture, "priorityclass", &class).await?;
    node.remove().await
}

/// By an eviction, and for a taint. The pods stop slowly.
async fn deleted(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "tainted", 2, true).await?;
    for name in ["tainted", "evicted"] {
        large_pod(&fixture, &node, name, None).await?;
        fixture.feed().until(name, "it is Ready", pods::is_ready).await?;
    }
    fixture.api().evict("evicted", &EvictParams::default()).await.context("evict the pod")?;
    let stops = "container server handles SIGTERM, killed in ";
    until_first_line(&fixture, "evicted", &format!("is stopping, evicted: {stops}")).await?;
    fixture.kubectl(&["taint", "node", &node.name, "example.com/repair:NoExecute"]).await?.succeeded()?;
    let words = format!("is stopping, deleted for a taint of its node: {stops}");
    let evidence =
        "condition DisruptionTarget (DeletionByTaintManager): Taint manager: deleting due to NoExecute taint";
    until_said(&fixture, "tainted", &words, &[evidence]).await?;
    let delete = ["delete", "pod", "tainted", "evicted", "--grace-period=0", "--force"];
    fixture.kubectl(&delete).await?.succeeded()?;
    node.remove().await
}
