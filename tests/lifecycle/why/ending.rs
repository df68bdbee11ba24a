//! Pods that end, have ended, or are on a lost node.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{pod, until_first_line, until_said};
use crate::deletion::lost_node::ago;
use crate::deletion::own_nodes::OwnNode;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("why_a_pod_is_still_stopping", stopping),
        Test::simulated("why_a_node_is_lost", lost),
        Test::node("why_a_pod_waits_for_podward", held),
    ]
}

async fn stopping(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let hook = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}});
    let slow = json!({"terminationGracePeriodSeconds": 40});
    pod(&fixture, "slow", slow, hook).await?;
    pod(&fixture, "kept", json!({}), json!({})).await?;
    pod(
        &fixture,
        "done",
        json!({"restartPolicy": "Never"}),
        json!({"args": ["--there-is-no-such-argument"]}),
    )
    .await?;
    for name in ["slow", "kept"] {
        fixture.feed().until(name, "it is Ready", podward_support::pods::is_ready).await?;
    }
    fixture.patch("kept", json!({"metadata": {"finalizers": ["example.com/volume"]}})).await?;
    for name in ["slow", "kept"] {
        fixture.kubectl(&["delete", "pod", name, "--wait=false"]).await?.succeeded()?;
    }
    until_first_line(
        &fixture,
        "slow",
        "is stopping: container server runs its preStop hook or handles SIGTERM, killed in ",
    )
    .await?;
    until_first_line(
        &fixture,
        "kept",
        "is deleted when finalizer example.com/volume is removed, by its owner",
    )
    .await?;
    fixture.patch("kept", json!({"metadata": {"finalizers": null}})).await?;
    let ended = "failed: container server ended with exit code 1";
    until_said(&fixture, "done", ended, &["last log of server: "]).await?;
    Ok(())
}

async fn lost(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "lost", 2, false).await?;
    node.report("True", &ago(0)).await?;
    let mut here = json!({});
    node.place(&mut here);
    pod(&fixture, "lost", here.clone(), json!({})).await?;
    let has_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    fixture.feed().until("lost", "it has a node", has_node).await?;
    node.report("Unknown", &ago(120)).await?;
    let said = until_first_line(&fixture, "lost", &format!("its node {} does not report", node.name)).await?;
    ensure!(said.contains("node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"), "{said}");
    until_first_line(&fixture, &format!("node/{}", node.name), "Ready is Unknown").await?;
    fixture.kubectl(&["delete", "pod", "lost", "--grace-period=0", "--force"]).await?.succeeded()?;
    node.remove().await
}

/// The first line of a pod that is held names the operation and what it waits for.
async fn held(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(podward_support::TrafficBehaviour::NOT_DRAINED);
    let operator = fixture.operator("upgrade", "update");
    operator.begin("web").await?;
    let words = format!("operation upgrade (update) waits for the owners of {}", traffic.finalizer());
    let said = until_first_line(&fixture, "web", &words).await?;
    ensure!(said.lines().next().is_some_and(|line| line.contains("; next: ")), "{said}");
    let json = fixture.plugin(&["why", "web", "--output=json"]).await?.succeeded()?.said;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    ensure!(json["causes"][0]["case"] == "Operation", "{json}");
    let table = fixture.plugin(&["get"]).await?.succeeded()?.said;
    let row = table.lines().nth(1).unwrap_or_default();
    ensure!(row.starts_with("web   upgrade (update)   Preparing   "), "{table}");
    ensure!(table.ends_with("1 opted in, 1 waiting, 0 overdue, 0 without gate\n"), "{table}");
    let names = fixture.plugin(&["get", "--output=name"]).await?.succeeded()?.said;
    ensure!(names == "pod/web\n", "{names}");
    traffic.set_behaviour(podward_support::TrafficBehaviour::PROMPT);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await.map(drop)
}
