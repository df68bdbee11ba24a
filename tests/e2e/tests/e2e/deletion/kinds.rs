//! Workloads other than Deployments.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace};
use serde_json::{Value, json};

use super::{
    made::{APP, LONG, is_wished, make, names_of, patch, restart, scale, template, until_serving},
    neighbours::OwnNode,
    replay::{now, replay},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("stateful_set_goes_in_order", stateful_set_goes_in_order),
        Test::simulated("daemon_set_rolls_one_by_one", daemon_set_rolls_one_by_one),
        Test::simulated("job_shrinks_and_is_suspended", job_shrinks_and_is_suspended),
        Test::simulated("job_is_deleted", job_is_deleted),
    ]
}

async fn stateful_set_goes_in_order(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let mut set = workload(&scene, "StatefulSet", "db");
    set["spec"]["serviceName"] = json!("db");
    set["spec"]["replicas"] = json!(4);
    make(&scene, set).await?;
    until_serving(&scene, "db", 4).await?;
    slow(&traffic);
    let since = now(&scene).await?;
    scale(&scene, "StatefulSet", "db", 2).await?;
    until_serving(&scene, "db", 2).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.order == ["db-3", "db-2"] && seen.fewest_ready == 2, "scale-in: {seen:?}");

    let uids = |scene: &Scene| -> BTreeSet<String> {
        scene.feed().all().iter().filter_map(|pod| pod.uid()).collect()
    };
    let before = uids(&scene);
    let since = now(&scene).await?;
    restart(&scene, "StatefulSet", "db").await?;
    let status = ["rollout", "status", "statefulset", "db", "--timeout=100s"];
    scene.kubectl(&status).await?.succeeded()?;
    until_serving(&scene, "db", 2).await?;
    ensure!(before.is_disjoint(&uids(&scene)), "a pod was not updated");
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.order == ["db-1", "db-0"] && seen.fewest_ready == 1, "rolling update: {seen:?}");
    Ok(())
}

async fn daemon_set_rolls_one_by_one(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let mut nodes = Vec::new();
    for which in ["a", "b", "c"] {
        nodes.push(OwnNode::make(&scene, which, 100, true).await?);
    }
    let mut set = workload(&scene, "DaemonSet", "agent");
    nodes[0].place(&mut set["spec"]["template"]["spec"]);
    make(&scene, set).await?;
    let before: BTreeSet<String> = until_serving(&scene, "agent", 3).await?.into_iter().collect();
    slow(&traffic);
    let since = now(&scene).await?;
    restart(&scene, "DaemonSet", "agent").await?;
    scene.kubectl(&["rollout", "status", "daemonset", "agent", "--timeout=100s"]).await?.succeeded()?;
    until_serving(&scene, "agent", 3).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.fewest_ready == 2 && seen.gone == before && seen.left == before, "{before:?}: {seen:?}");
    for node in nodes {
        node.remove().await?;
    }
    Ok(())
}

/// By its parallelism exactly as many go as are too many; suspended, all go. Each leaves service first.
async fn job_shrinks_and_is_suspended(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    make(&scene, job(&scene)).await?;
    let before: BTreeSet<String> = until_serving(&scene, "work", 3).await?.into_iter().collect();
    slow(&traffic);
    let since = now(&scene).await?;
    patch(&scene, "batch/v1", "Job", "work", &json!({"spec": {"parallelism": 1}})).await?;
    let kept: BTreeSet<String> = until_serving(&scene, "work", 1).await?.into_iter().collect();
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(kept.is_subset(&before) && seen.left.len() == 2, "{before:?}: {seen:?}");
    patch(&scene, "batch/v1", "Job", "work", &json!({"spec": {"suspend": true}})).await?;
    until_none(&scene).await?;
    replay(&scene, since, |_| true).await.map(drop)
}

async fn job_is_deleted(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    make(&scene, job(&scene)).await?;
    until_serving(&scene, "work", 3).await?;
    traffic.behave(Behaviour::HOLDS);
    let since = now(&scene).await?;
    scene.kubectl(&["delete", "job", "work", "--wait=false"]).await?.succeeded()?;
    let all = |pods: &[&Pod]| pods.len() == 3 && pods.iter().all(|pod| is_wished(pod));
    scene.feed().until_pods("all its pods are to go", all).await?;
    traffic.behave(Behaviour::PROMPT);
    until_none(&scene).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.left.len() == 3, "{seen:?}");
    Ok(())
}

fn slow(traffic: &podward_support::TrafficLoop) {
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(300)), ..Behaviour::PROMPT });
}

async fn until_none(scene: &Scene) -> Result<()> {
    let none = scene.feed().until_pods_within(LONG, "no pod is left", |pods| pods.is_empty());
    none.await.map(drop).with_context(|| format!("left: {:?}", names_of(scene, "work")))
}

/// A workload with what all kinds have in common.
fn workload(scene: &Scene, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {APP: name}}, "template": template(scene, name)},
    })
}

/// A Job of three pods that never end.
fn job(scene: &Scene) -> Value {
    let mut pod = template(scene, "work");
    pod["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"parallelism": 3, "completions": 10, "template": pod},
    })
}
