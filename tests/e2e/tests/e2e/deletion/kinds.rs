//! Workloads of each kind, and what their own controllers do with pods.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace, pods};
use serde_json::{Value, json};

use super::{
    made::{
        APP, LONG, deployment, is_wished, make, names_of, only_on, patch, real_node, restart, scale,
        template, until_gone, until_leaving, until_serving,
    },
    neighbours::OwnNode,
    replay::{now, replay},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node(
            "deployment_is_scaled_in_as_by_an_autoscaler",
            deployment_is_scaled_in_as_by_an_autoscaler,
        ),
        Test::node("stateful_set_goes_in_order", stateful_set_goes_in_order),
        Test::node("daemon_set_is_replaced_on_its_node", daemon_set_is_replaced_on_its_node),
        // A DaemonSet has one pod a node, and the bed has one real node: the order among several needs simulated ones.
        Test::simulated("daemon_set_rolls_one_by_one", daemon_set_rolls_one_by_one),
        Test::node("job_shrinks_and_is_suspended", job_shrinks_and_is_suspended),
        Test::node("job_is_deleted", job_is_deleted),
        Test::node("job_is_deleted_after_its_end", job_is_deleted_after_its_end),
    ]
}

/// By the scale subresource, which is all that an autoscaler writes: exactly as many leave as are too many, and the others never do.
async fn deployment_is_scaled_in_as_by_an_autoscaler(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    make(&scene, deployment(&scene, "web", 4)).await?;
    let before: BTreeSet<String> = until_serving(&scene, "web", 4).await?.into_iter().collect();
    traffic.behave(Behaviour::HOLDS);
    let since = now(&scene).await?;
    for (replicas, wishes) in [("3", 1), ("2", 2)] {
        let replicas = format!("--replicas={replicas}");
        scene.kubectl(&["scale", "deployment", "web", &replicas]).await?.succeeded()?;
        let wished = |pods: &[&Pod]| pods.iter().filter(|pod| is_wished(pod)).count() == wishes;
        scene.feed().until_pods(&format!("{wishes} pods are to go"), wished).await?;
    }
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.gone.is_empty(), "gone although they are held: {:?}", seen.gone);
    traffic.behave(Behaviour::PROMPT);
    let kept: BTreeSet<String> = until_serving(&scene, "web", 2).await?.into_iter().collect();
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(kept.is_subset(&before) && seen.left == &before - &kept && seen.fewest_ready == 2, "{seen:?}");
    ensure!(seen.gone == seen.left, "{seen:?}");
    Ok(())
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

/// At first the old pod leaves service before there is a new one, then, with a surge, when the new one is in service. Deleted by hand
/// it is replaced; deleted with its DaemonSet it isn't.
async fn daemon_set_is_replaced_on_its_node(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let mut set = workload(&scene, "DaemonSet", "agent");
    only_on(&mut set["spec"]["template"]["spec"], &real_node(&scene).await?);
    make(&scene, set).await?;
    slow(&traffic);
    for surge in [false, true] {
        let bounds = if surge {
            json!({"maxSurge": 1, "maxUnavailable": 0})
        } else {
            json!({"maxSurge": 0, "maxUnavailable": 1})
        };
        let strategy = json!({"spec": {"updateStrategy": {"rollingUpdate": bounds}}});
        patch(&scene, "apps/v1", "DaemonSet", "agent", &strategy).await?;
        let before: BTreeSet<String> = until_serving(&scene, "agent", 1).await?.into_iter().collect();
        let since = now(&scene).await?;
        restart(&scene, "DaemonSet", "agent").await?;
        scene.kubectl(&["rollout", "status", "daemonset", "agent", "--timeout=100s"]).await?.succeeded()?;
        until_serving(&scene, "agent", 1).await?;
        let seen = replay(&scene, since, |_| true).await?;
        ensure!(seen.left == before, "had {before:?}, surge {surge}: {seen:?}");
        ensure!(before.is_subset(&seen.gone), "had {before:?}, surge {surge}: {seen:?}");
        ensure!(seen.fewest_ready == usize::from(surge), "surge {surge}: {seen:?}");
    }

    let since = now(&scene).await?;
    traffic.behave(Behaviour::HOLDS);
    let name = names_of(&scene, "agent").pop().context("it has no pod")?;
    scene.kubectl(&["delete", "pod", &name, "--wait=false"]).await?.was_held(&[traffic.finalizer()])?;
    until_leaving(&scene, &name).await?;
    slow(&traffic);
    until_gone(&scene, &name).await?;
    until_serving(&scene, "agent", 1).await?;
    scene.kubectl(&["delete", "daemonset", "agent"]).await?.succeeded()?;
    until_none(&scene).await?;
    // None went while it was in service.
    replay(&scene, since, |_| true).await.map(drop)
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

/// Its containers have ended by themselves, so nothing is held any more; but consumers are told, and the pods stay until they have let go.
async fn job_is_deleted_after_its_end(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let mut work = job(&scene);
    (work["spec"]["parallelism"], work["spec"]["completions"]) = (json!(2), json!(2));
    // The server never ends by itself. What it is asked to drain the kubelet ends, in good order, and doesn't start again.
    let container = &mut work["spec"]["template"]["spec"]["containers"][0];
    let probe = json!({
        "httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2,
    });
    container["livenessProbe"] = probe;
    make(&scene, work).await?;
    let names = until_serving(&scene, "work", 2).await?;
    traffic.behave(Behaviour::HOLDS);
    for name in &names {
        let drain = format!("/api/v1/namespaces/{}/pods/{name}:8080/proxy/drain", scene.namespace());
        scene.kubectl(&["get", "--raw", &drain]).await?.succeeded()?;
    }
    scene
        .kubectl(&["wait", "job", "work", "--for=condition=complete", "--timeout=60s"])
        .await?
        .succeeded()?;
    scene.kubectl(&["delete", "job", "work", "--wait=false"]).await?.succeeded()?;
    let deleted = |pods: &[&Pod]| {
        pods.len() == names.len() && pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())
    };
    for pod in scene.feed().until_pods("its pods are being deleted", deleted).await? {
        let is_held = pods::holders(&pod).any(|holder| holder == traffic.finalizer());
        ensure!(is_held && !is_wished(&pod), "{}: {}", pod.name_any(), pods::describe(&pod));
    }
    traffic.behave(Behaviour::PROMPT);
    until_none(&scene).await
}

fn slow(traffic: &podward_support::TrafficLoop) {
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(300)), ..Behaviour::PROMPT });
}

async fn until_none(scene: &Scene) -> Result<()> {
    let none = scene.feed().until_pods_within(LONG, "no pod is left", |pods| pods.is_empty());
    none.await.map(drop)
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
