//! Whoever makes room on a node: `kubectl drain`, and the scheduler by preemption.
//!
//! A drain closes the node for everybody until it is opened again, so on the one real node of a bed no other test runs at the time. It is
//! limited to the test's pods by their label, which has the name of the namespace.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use podward_e2e::{Kubectl, Scene, Test};
use podward_support::{Behaviour, Pace, pods};
use serde_json::{Value, json};

use super::{
    made::{
        APP, LONG, api_of, deployment, is_wished, make, names_of, only_on, real_node, template, until_gone,
        until_leaving, until_preempted, until_serving,
    },
    neighbours::OwnNode,
    replay::{now, replay},
};

const REPLICAS: usize = 3;
const DISRUPTIONS: usize = 2;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("drain_of_a_real_node", drain_of_a_real_node),
        Test::alone("drain_of_a_real_node_without_eviction", drain_of_a_real_node_without_eviction),
        // Pods that move to another node need a second one, and there deletes wait (`--wait`).
        Test::simulated("drain_to_another_node", drain_to_another_node),
        Test::simulated("drain_to_another_node_without_eviction", drain_to_another_node_without_eviction),
        Test::node("preemption_on_a_real_node", preemption_on_a_real_node),
    ]
}

/// By evictions, which kubectl repeats: the budget has no room for the last pod at first, and it ends with 0 by itself all the same.
async fn drain_of_a_real_node(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let app = scene.namespace();
    let node = real_node(&scene).await?;
    let mut web = deployment(&scene, app, REPLICAS);
    let spec = &mut web["spec"]["template"]["spec"];
    only_on(spec, &node);
    // There is no other node for those that take over.
    spec["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    let before = in_service(&scene, web).await?;
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(500)), ..Behaviour::PROMPT });
    let since = now(&scene).await?;
    let drained = async {
        drain(&scene, &node, &["--timeout=100s"]).await?.succeeded()?;
        ensure!(is_closed(&scene, &node).await?, "the node is open");
        let seen = replay(&scene, since, |_| true).await?;
        ensure!(before.is_subset(&seen.gone) && before.is_subset(&seen.left), "had {before:?}: {seen:?}");
        ensure!(seen.fewest_ready == REPLICAS - DISRUPTIONS, "{} were Ready", seen.fewest_ready);
        // That the node is closed is for its pods of before alone.
        until_serving(&scene, app, REPLICAS).await
    };
    let after = and_open(&scene, &node, drained).await?;
    ensure!(after.iter().all(|name| !before.contains(name)), "had {before:?}, and has {after:?}");
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.left == before, "a pod left that was made meanwhile: {seen:?}");
    Ok(())
}

/// By deletes, which ask no budget and which kubectl doesn't repeat: it ends with an error that says who holds the pod, and the wish
/// stands. Run again, it ends with 0 at the latest when it was told so for each pod.
async fn drain_of_a_real_node_without_eviction(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let app = scene.namespace();
    let node = real_node(&scene).await?;
    let mut web = deployment(&scene, app, REPLICAS);
    only_on(&mut web["spec"]["template"]["spec"], &node);
    let before = in_service(&scene, web).await?;
    traffic.behave(Behaviour::HOLDS);
    let since = now(&scene).await?;
    let drained = async {
        let by_deletes = ["--disable-eviction", "--timeout=60s"];
        drain(&scene, &node, &by_deletes).await?.was_held(&[traffic.finalizer()])?;
        let wished = |pods: &[&Pod]| pods.iter().any(|pod| is_wished(pod) && !pods::is_ready(pod));
        scene.feed().until_pods("a pod is out of service, to be deleted", wished).await?;
        let seen = replay(&scene, since, |_| true).await?;
        ensure!(seen.gone.is_empty(), "gone although they are held: {:?}", seen.gone);
        traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(200)), ..Behaviour::PROMPT });
        let mut left = REPLICAS;
        loop {
            // What was told is true: it goes by itself.
            let of_before =
                |pods: &[&Pod]| pods.iter().filter(|pod| before.contains(&pod.name_any())).count();
            let fewer = |pods: &[&Pod]| of_before(pods) < left;
            let found = scene.feed().until_pods("one more pod of the node is gone", fewer).await?;
            left = of_before(&found.iter().map(AsRef::as_ref).collect::<Vec<_>>());
            let said = drain(&scene, &node, &by_deletes).await?;
            if said.code == Some(0) {
                ensure!(left == 0, "it ended with 0, and {left} pods are left: {}", said.said);
                return Ok(());
            }
            said.was_held(&[])?;
        }
    };
    and_open(&scene, &node, drained).await?;
    until_serving(&scene, app, REPLICAS).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.left == before && seen.gone == before, "had {before:?}: {seen:?}");
    Ok(())
}

/// Runs `kubectl drain` for the test's pods.
async fn drain(scene: &Scene, node: &str, options: &[&str]) -> Result<Kubectl> {
    let selector = format!("--pod-selector={APP}={}", scene.namespace());
    scene.kubectl(&[&["drain", node, &selector], options].concat()).await
}

/// The result of `work`, after which the node is open again, whatever that is.
pub(super) async fn and_open<T>(
    scene: &Scene,
    node: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let done = work.await;
    let opened = scene.kubectl(&["uncordon", node]).await.and_then(Kubectl::succeeded);
    let done = done?;
    opened.map(|_| done)
}

async fn is_closed(scene: &Scene, node: &str) -> Result<bool> {
    let node = Api::<Node>::all(scene.client()).get(node).await.context("read the node")?;
    Ok(node.spec.is_some_and(|spec| spec.unschedulable == Some(true)))
}

/// Makes the Deployment, and a budget for it. Gives the names of its pods when they are in service.
async fn in_service(scene: &Scene, web: Value) -> Result<BTreeSet<String>> {
    let app = scene.namespace();
    make(scene, web).await?;
    make(scene, budget(app, DISRUPTIONS)).await?;
    Ok(until_serving(scene, app, REPLICAS).await?.into_iter().collect())
}

fn budget(app: &str, disruptions: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": disruptions, "selector": {"matchLabels": {APP: app}}},
    })
}

/// By evictions, which kubectl repeats: it ends with 0 once consumers have let go, and the budget holds all the time.
async fn drain_to_another_node(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let (node, other) = two_nodes(&scene).await?;
    make(&scene, budget("web", 1)).await?;
    let names = names_of(&scene, "web");
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(500)), ..Behaviour::PROMPT });
    let since = now(&scene).await?;
    let drain = ["drain", &node.name, "--ignore-daemonsets", "--timeout=100s"];
    scene.kubectl(&drain).await?.succeeded()?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(names.iter().all(|name| seen.gone.contains(name)), "gone: {:?}", seen.gone);
    ensure!(seen.fewest_ready == REPLICAS - 1, "{} were Ready", seen.fewest_ready);
    until_serving(&scene, "web", REPLICAS).await?;
    node.remove().await?;
    other.remove().await
}

/// By deletes, which kubectl doesn't repeat: where consumers don't let go in the time that the webhook waits it ends with an error, and
/// its wish stands. Run again when they do, it ends with 0.
async fn drain_to_another_node_without_eviction(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let (node, other) = two_nodes(&scene).await?;
    let names = names_of(&scene, "web");
    let drain = ["drain", &node.name, "--ignore-daemonsets", "--disable-eviction", "--timeout=60s"];
    traffic.behave(Behaviour::HOLDS);
    let said = scene.kubectl(&drain).await?;
    ensure!(
        said.code == Some(1) && said.said.contains(traffic.finalizer()),
        "{:?}: {}",
        said.code,
        said.said
    );
    let is_out = |name: &&String| scene.feed().get(name).is_some_and(|pod| !pods::is_ready(&pod));
    let wished: Vec<&String> = names.iter().filter(is_out).collect();
    ensure!(!wished.is_empty(), "no wish was recorded");
    for name in wished {
        until_leaving(&scene, name).await?;
    }
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(200)), ..Behaviour::PROMPT });
    scene.kubectl(&drain).await?.succeeded()?;
    let left = names_of(&scene, "web").into_iter().filter(|name| names.contains(name)).count();
    ensure!(left == 0, "{left} pods are left on the node");
    until_serving(&scene, "web", REPLICAS).await?;
    node.remove().await?;
    other.remove().await
}

/// A node with all pods of a Deployment, and another one for those that are to take over.
async fn two_nodes(scene: &Scene) -> Result<(OwnNode<'_>, OwnNode<'_>)> {
    let node = OwnNode::make(scene, "a", 100, true).await?;
    let mut web = deployment(scene, "web", REPLICAS);
    node.place(&mut web["spec"]["template"]["spec"]);
    make(scene, web).await?;
    until_serving(scene, "web", REPLICAS).await?;
    let other = OwnNode::make(scene, "b", 100, true).await?;
    Ok((node, other))
}

/// The scheduler's victim leaves service first; then the pod with the higher priority gets its place. What there isn't enough of is a
/// resource that nobody but the test knows, so that no other test's pod can be a victim.
async fn preemption_on_a_real_node(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let node = real_node(&scene).await?;
    let resource = format!("example.com/{}", scene.namespace());
    let class = format!("{}-high", scene.namespace());
    make(
        &scene,
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        }),
    )
    .await?;
    offer(&scene, &node, &resource, &json!("1")).await?;
    let pod = |name: &str, takes: u32, class: Option<&str>| {
        let mut pod = template(&scene, name);
        (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
        pod["metadata"]["name"] = json!(name);
        let spec = &mut pod["spec"];
        only_on(spec, &node);
        if takes > 0 {
            spec["containers"][0]["resources"] = json!({"limits": {&resource: takes.to_string()}});
        }
        if let Some(class) = class {
            spec["priorityClassName"] = json!(class);
        }
        pod
    };
    for (name, takes) in [("low", 1), ("bystander", 0)] {
        make(&scene, pod(name, takes, None)).await?;
    }
    for name in ["low", "bystander"] {
        scene.until_available(name).await?;
    }
    let since = now(&scene).await?;
    traffic.behave_towards("low", Behaviour::HOLDS);
    make(&scene, pod("high", 1, Some(&class))).await?;
    let leaving = until_preempted(&scene, "low", "high").await?;
    let is_running = pods::container(&leaving).is_some_and(|container| container.ready);
    ensure!(is_running && leaving.metadata.deletion_timestamp.is_none(), "{}", pods::describe(&leaving));
    traffic.behave_towards("low", Behaviour::PROMPT);
    until_gone(&scene, "low").await?;
    scene.feed().until_within(LONG, "high", "it is available", pods::is_available).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.order == ["low"] && seen.gone.len() == 1, "{seen:?}");
    api_of(&scene, "scheduling.k8s.io/v1", "PriorityClass").delete(&class, &DeleteParams::default()).await?;
    offer(&scene, &node, &resource, &Value::Null).await
}

/// Says how much of the resource the node has; `null` takes it away.
async fn offer(scene: &Scene, node: &str, resource: &str, amount: &Value) -> Result<()> {
    // The kubelet leaves alone what it doesn't know. In some seconds it would copy the one to the other itself.
    let change = json!({"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}});
    let api = api_of(scene, "v1", "Node");
    let patched = api.patch_status(node, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).with_context(|| format!("offer {amount} of {resource} on node {node}"))
}
