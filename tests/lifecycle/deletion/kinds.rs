//! Each kind of workload, and how its own controller deletes pods.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficPace, pods};
use serde_json::{Value, json};

use super::{
    objects::{
        APP, LONG, deployment, is_delete_requested, make, names_of, only_on, patch, real_node, restart,
        scale, template, until_gone, until_leaving, until_serving,
    },
    own_nodes::OwnNode,
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
        // A DaemonSet has one pod per node, and the test cluster has one real node. The order among several nodes
        // needs simulated ones.
        Test::simulated("daemon_set_rolls_one_by_one", daemon_set_rolls_one_by_one),
        Test::node("job_shrinks_and_is_suspended", job_shrinks_and_is_suspended),
        Test::node("job_is_deleted", job_is_deleted),
        Test::node("job_is_deleted_after_its_end", job_is_deleted_after_its_end),
    ]
}

/// With the scale subresource, which is all that an autoscaler writes: exactly the excess pods leave service, and the
/// others never do.
async fn deployment_is_scaled_in_as_by_an_autoscaler(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, deployment(&fixture, "web", 4)).await?;
    let before: BTreeSet<String> = until_serving(&fixture, "web", 4).await?.into_iter().collect();
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let since = now(&fixture).await?;
    for (replicas, requests) in [("3", 1), ("2", 2)] {
        let replicas = format!("--replicas={replicas}");
        fixture.kubectl(&["scale", "deployment", "web", &replicas]).await?.succeeded()?;
        let requested =
            |pods: &[&Pod]| pods.iter().filter(|pod| is_delete_requested(pod)).count() == requests;
        fixture.feed().until_pods(&format!("{requests} pods are to go"), requested).await?;
    }
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.gone.is_empty(), "gone although they are held: {:?}", seen.gone);
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    let kept: BTreeSet<String> = until_serving(&fixture, "web", 2).await?.into_iter().collect();
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(kept.is_subset(&before) && seen.left == &before - &kept && seen.fewest_ready == 2, "{seen:?}");
    ensure!(seen.gone == seen.left, "{seen:?}");
    Ok(())
}

async fn stateful_set_goes_in_order(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let mut set = workload(&fixture, "StatefulSet", "db");
    set["spec"]["serviceName"] = json!("db");
    set["spec"]["replicas"] = json!(4);
    make(&fixture, set).await?;
    until_serving(&fixture, "db", 4).await?;
    slow(&traffic);
    let since = now(&fixture).await?;
    scale(&fixture, "StatefulSet", "db", 2).await?;
    until_serving(&fixture, "db", 2).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.order == ["db-3", "db-2"] && seen.fewest_ready == 2, "scale-in: {seen:?}");

    let uids = |fixture: &Fixture| -> BTreeSet<String> {
        fixture.feed().all().iter().filter_map(|pod| pod.uid()).collect()
    };
    let before = uids(&fixture);
    let since = now(&fixture).await?;
    restart(&fixture, "StatefulSet", "db").await?;
    let status = ["rollout", "status", "statefulset", "db", "--timeout=100s"];
    fixture.kubectl(&status).await?.succeeded()?;
    until_serving(&fixture, "db", 2).await?;
    ensure!(before.is_disjoint(&uids(&fixture)), "a pod was not updated");
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.order == ["db-1", "db-0"] && seen.fewest_ready == 1, "rolling update: {seen:?}");
    Ok(())
}

/// At first the old pod leaves service before there is a new one. Then, with a surge, when the new one is available.
/// A deleted pod is replaced. It is not if it is deleted with its DaemonSet.
async fn daemon_set_is_replaced_on_its_node(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let mut set = workload(&fixture, "DaemonSet", "agent");
    only_on(&mut set["spec"]["template"]["spec"], &real_node(&fixture).await?);
    make(&fixture, set).await?;
    slow(&traffic);
    for surge in [false, true] {
        let bounds = if surge {
            json!({"maxSurge": 1, "maxUnavailable": 0})
        } else {
            json!({"maxSurge": 0, "maxUnavailable": 1})
        };
        let strategy = json!({"spec": {"updateStrategy": {"rollingUpdate": bounds}}});
        patch(&fixture, "apps/v1", "DaemonSet", "agent", &strategy).await?;
        let before: BTreeSet<String> = until_serving(&fixture, "agent", 1).await?.into_iter().collect();
        let since = now(&fixture).await?;
        restart(&fixture, "DaemonSet", "agent").await?;
        fixture.kubectl(&["rollout", "status", "daemonset", "agent", "--timeout=100s"]).await?.succeeded()?;
        until_serving(&fixture, "agent", 1).await?;
        let seen = replay(&fixture, since, |_| true).await?;
        ensure!(seen.left == before, "had {before:?}, surge {surge}: {seen:?}");
        ensure!(before.is_subset(&seen.gone), "had {before:?}, surge {surge}: {seen:?}");
        ensure!(seen.fewest_ready == usize::from(surge), "surge {surge}: {seen:?}");
    }

    let since = now(&fixture).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let name = names_of(&fixture, "agent").pop().context("it has no pod")?;
    fixture.kubectl(&["delete", "pod", &name, "--wait=false"]).await?.was_held(&[traffic.finalizer()])?;
    until_leaving(&fixture, &name).await?;
    slow(&traffic);
    until_gone(&fixture, &name).await?;
    until_serving(&fixture, "agent", 1).await?;
    fixture.kubectl(&["delete", "daemonset", "agent"]).await?.succeeded()?;
    until_none(&fixture).await?;
    // No pod was deleted while it was in service.
    replay(&fixture, since, |_| true).await.map(drop)
}

async fn daemon_set_rolls_one_by_one(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let mut nodes = Vec::new();
    for which in ["a", "b", "c"] {
        nodes.push(OwnNode::make(&fixture, which, 100, true).await?);
    }
    let mut set = workload(&fixture, "DaemonSet", "agent");
    nodes[0].place(&mut set["spec"]["template"]["spec"]);
    make(&fixture, set).await?;
    let before: BTreeSet<String> = until_serving(&fixture, "agent", 3).await?.into_iter().collect();
    slow(&traffic);
    let since = now(&fixture).await?;
    restart(&fixture, "DaemonSet", "agent").await?;
    fixture.kubectl(&["rollout", "status", "daemonset", "agent", "--timeout=100s"]).await?.succeeded()?;
    until_serving(&fixture, "agent", 3).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.fewest_ready == 2 && seen.gone == before && seen.left == before, "{before:?}: {seen:?}");
    for node in nodes {
        node.remove().await?;
    }
    Ok(())
}

/// With a lower parallelism, exactly the excess pods are deleted. If the Job is suspended, all are. Each leaves
/// service first.
async fn job_shrinks_and_is_suspended(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, job(&fixture)).await?;
    let before: BTreeSet<String> = until_serving(&fixture, "work", 3).await?.into_iter().collect();
    slow(&traffic);
    let since = now(&fixture).await?;
    patch(&fixture, "batch/v1", "Job", "work", &json!({"spec": {"parallelism": 1}})).await?;
    let kept: BTreeSet<String> = until_serving(&fixture, "work", 1).await?.into_iter().collect();
    let seen = replay(&fixture, since, |_| true).await?;
    let excess = &before - &kept;
    ensure!(
        kept.is_subset(&before) && seen.left == excess && seen.gone == excess,
        "{before:?}, kept {kept:?}: {seen:?}"
    );
    patch(&fixture, "batch/v1", "Job", "work", &json!({"spec": {"suspend": true}})).await?;
    until_none(&fixture).await?;
    replay(&fixture, since, |_| true).await.map(drop)
}

async fn job_is_deleted(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, job(&fixture)).await?;
    until_serving(&fixture, "work", 3).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let since = now(&fixture).await?;
    fixture.kubectl(&["delete", "job", "work", "--wait=false"]).await?.succeeded()?;
    let all = |pods: &[&Pod]| pods.len() == 3 && pods.iter().all(|pod| is_delete_requested(pod));
    fixture.feed().until_pods("all its pods are to go", all).await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_none(&fixture).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left.len() == 3, "{seen:?}");
    Ok(())
}

/// Its containers have finished, so deletes are not held any more. Consumers still get a call, and the pods stay
/// until they have released them.
async fn job_is_deleted_after_its_end(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let mut work = job(&fixture);
    (work["spec"]["parallelism"], work["spec"]["completions"]) = (json!(2), json!(2));
    // The server never ends by itself. The kubelet ends a drained server in an orderly way and does not restart it.
    let container = &mut work["spec"]["template"]["spec"]["containers"][0];
    let probe = json!({
        "httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2,
    });
    container["livenessProbe"] = probe;
    make(&fixture, work).await?;
    let names = until_serving(&fixture, "work", 2).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    for name in &names {
        let drain = format!("/api/v1/namespaces/{}/pods/{name}:8080/proxy/drain", fixture.namespace());
        fixture.kubectl(&["get", "--raw", &drain]).await?.succeeded()?;
    }
    fixture
        .kubectl(&["wait", "job", "work", "--for=condition=complete", "--timeout=60s"])
        .await?
        .succeeded()?;
    fixture.kubectl(&["delete", "job", "work", "--wait=false"]).await?.succeeded()?;
    let deleted = |pods: &[&Pod]| {
        pods.len() == names.len() && pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())
    };
    for pod in fixture.feed().until_pods("its pods are being deleted", deleted).await? {
        let is_held = pods::holders(&pod).any(|holder| holder == traffic.finalizer());
        ensure!(is_held && !is_delete_requested(&pod), "{}: {}", pod.name_any(), pods::describe(&pod));
    }
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_none(&fixture).await
}

pub(super) fn slow(traffic: &podward_support::TrafficLoop) {
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(300)),
        ..TrafficBehaviour::PROMPT
    });
}

async fn until_none(fixture: &Fixture) -> Result<()> {
    let none = fixture.feed().until_pods_within(LONG, "no pod is left", |pods| pods.is_empty());
    none.await.map(drop)
}

/// Returns a workload with the fields that all kinds share.
pub(super) fn workload(fixture: &Fixture, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {APP: name}}, "template": template(fixture, name)},
    })
}

/// Returns a Job with three pods that never end.
fn job(fixture: &Fixture) -> Value {
    let mut pod = template(fixture, "work");
    pod["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"parallelism": 3, "completions": 10, "template": pod},
    })
}
