//! Drains of a node: `kubectl drain`, and preemption by the scheduler.
//!
//! A drain cordons the node until it is uncordoned. So no other test runs at the same time on the only real node of a
//! test cluster. The drain is limited to the test's pods by their label, which contains the name of the namespace.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use podward_e2e::{Fixture, Kubectl, Test};
use podward_support::{TrafficBehaviour, TrafficPace, pods};
use serde_json::{Value, json};

use super::{
    objects::{
        APP, LONG, api_of, deployment, is_delete_requested, make, names_of, only_on, real_node, template,
        until_gone, until_leaving, until_preempted, until_serving,
    },
    own_nodes::OwnNode,
    replay::{now, replay},
};

const REPLICAS: usize = 3;
const DISRUPTIONS: usize = 2;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("drain_of_a_real_node", drain_of_a_real_node),
        Test::alone("drain_of_a_real_node_without_eviction", drain_of_a_real_node_without_eviction),
        // Pods that move need a second node, and there deletes wait (`--wait`).
        Test::simulated("drain_to_another_node", drain_to_another_node),
        Test::simulated("drain_to_another_node_without_eviction", drain_to_another_node_without_eviction),
        Test::node("preemption_on_a_real_node", preemption_on_a_real_node),
    ]
}

/// With evictions, which kubectl repeats: the budget does not allow the last pod at first, and kubectl still ends
/// with 0 by itself.
async fn drain_of_a_real_node(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let app = fixture.namespace();
    let node = real_node(&fixture).await?;
    let mut web = deployment(&fixture, app, REPLICAS);
    let spec = &mut web["spec"]["template"]["spec"];
    only_on(spec, &node);
    // There is no other node for the replacements.
    spec["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    let before = in_service(&fixture, web).await?;
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(500)),
        ..TrafficBehaviour::PROMPT
    });
    let since = now(&fixture).await?;
    let drained = async {
        drain(&fixture, &node, &["--timeout=100s"]).await?.succeeded()?;
        ensure!(is_closed(&fixture, &node).await?, "the node is open");
        let seen = replay(&fixture, since, |_| true).await?;
        ensure!(before.is_subset(&seen.gone) && before.is_subset(&seen.left), "had {before:?}: {seen:?}");
        ensure!(seen.fewest_ready >= REPLICAS - DISRUPTIONS, "only {} were Ready", seen.fewest_ready);
        // The node is only cordoned for the earlier pods.
        until_serving(&fixture, app, REPLICAS).await
    };
    let after = and_open(&fixture, &node, drained).await?;
    ensure!(after.iter().all(|name| !before.contains(name)), "had {before:?}, and has {after:?}");
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left == before, "a pod left that was made meanwhile: {seen:?}");
    Ok(())
}

/// With deletes, which ignore the budget and which kubectl does not repeat: it ends with an error that names the
/// consumer of the pod, and the deletion request is recorded. When it runs again, it ends with 0 at the latest after
/// one such error for each pod.
async fn drain_of_a_real_node_without_eviction(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let app = fixture.namespace();
    let node = real_node(&fixture).await?;
    let mut web = deployment(&fixture, app, REPLICAS);
    only_on(&mut web["spec"]["template"]["spec"], &node);
    let before = in_service(&fixture, web).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let since = now(&fixture).await?;
    let drained = async {
        let by_deletes = ["--disable-eviction", "--timeout=60s"];
        drain(&fixture, &node, &by_deletes).await?.was_held(&[traffic.finalizer()])?;
        let requested =
            |pods: &[&Pod]| pods.iter().any(|pod| is_delete_requested(pod) && !pods::is_ready(pod));
        fixture.feed().until_pods("a pod is out of service, to be deleted", requested).await?;
        let seen = replay(&fixture, since, |_| true).await?;
        ensure!(seen.gone.is_empty(), "gone although they are held: {:?}", seen.gone);
        traffic.set_behaviour(TrafficBehaviour {
            drain: TrafficPace::After(Duration::from_millis(200)),
            ..TrafficBehaviour::PROMPT
        });
        let mut left = REPLICAS;
        loop {
            // The message is true: the pod is deleted by itself.
            let of_before =
                |pods: &[&Pod]| pods.iter().filter(|pod| before.contains(&pod.name_any())).count();
            let fewer = |pods: &[&Pod]| of_before(pods) < left;
            let found = fixture.feed().until_pods("one more pod of the node is gone", fewer).await?;
            left = of_before(&found.iter().map(AsRef::as_ref).collect::<Vec<_>>());
            let said = drain(&fixture, &node, &by_deletes).await?;
            if said.code == Some(0) {
                let none = |pods: &[&Pod]| of_before(pods) == 0;
                return fixture.feed().until_pods("no pod of the node is left", none).await.map(drop);
            }
            said.was_held(&[])?;
        }
    };
    and_open(&fixture, &node, drained).await?;
    until_serving(&fixture, app, REPLICAS).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left == before && seen.gone == before, "had {before:?}: {seen:?}");
    Ok(())
}

/// Runs `kubectl drain` for the test's pods.
async fn drain(fixture: &Fixture, node: &str, options: &[&str]) -> Result<Kubectl> {
    let selector = format!("--pod-selector={APP}={}", fixture.namespace());
    fixture.kubectl(&[&["drain", node, &selector], options].concat()).await
}

/// Returns the result of `work`, and uncordons the node in any case.
pub(super) async fn and_open<T>(
    fixture: &Fixture,
    node: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let done = work.await;
    let opened = fixture.kubectl(&["uncordon", node]).await.and_then(Kubectl::succeeded);
    let done = done?;
    opened.map(|_| done)
}

async fn is_closed(fixture: &Fixture, node: &str) -> Result<bool> {
    let node = Api::<Node>::all(fixture.client()).get(node).await.context("read the node")?;
    Ok(node.spec.is_some_and(|spec| spec.unschedulable == Some(true)))
}

/// Creates the Deployment and a budget for it. Returns the names of its pods when they are available.
async fn in_service(fixture: &Fixture, web: Value) -> Result<BTreeSet<String>> {
    let app = fixture.namespace();
    make(fixture, web).await?;
    make(fixture, budget(app, DISRUPTIONS)).await?;
    Ok(until_serving(fixture, app, REPLICAS).await?.into_iter().collect())
}

fn budget(app: &str, disruptions: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": disruptions, "selector": {"matchLabels": {APP: app}}},
    })
}

/// With evictions, which kubectl repeats: it ends with 0 when consumers have released the pods, and the budget holds
/// all the time.
async fn drain_to_another_node(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let (node, other) = two_nodes(&fixture).await?;
    make(&fixture, budget("web", 1)).await?;
    let names = names_of(&fixture, "web");
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(500)),
        ..TrafficBehaviour::PROMPT
    });
    let since = now(&fixture).await?;
    let drain = ["drain", &node.name, "--ignore-daemonsets", "--timeout=100s"];
    fixture.kubectl(&drain).await?.succeeded()?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(names.iter().all(|name| seen.gone.contains(name)), "gone: {:?}", seen.gone);
    ensure!(seen.fewest_ready == REPLICAS - 1, "{} were Ready", seen.fewest_ready);
    until_serving(&fixture, "web", REPLICAS).await?;
    node.remove().await?;
    other.remove().await
}

/// With deletes, which kubectl does not repeat: if consumers need longer than the webhook waits, kubectl ends with an
/// error, and the deletion request is recorded. When it runs again after that, it ends with 0.
async fn drain_to_another_node_without_eviction(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let (node, other) = two_nodes(&fixture).await?;
    let names = names_of(&fixture, "web");
    let drain = ["drain", &node.name, "--ignore-daemonsets", "--disable-eviction", "--timeout=60s"];
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let said = fixture.kubectl(&drain).await?;
    ensure!(
        said.code == Some(1) && said.said.contains(traffic.finalizer()),
        "{:?}: {}",
        said.code,
        said.said
    );
    let is_out = |pod: &&Pod| !pods::is_ready(pod);
    let out = fixture.feed().until_pods("a pod is out of service", |pods| pods.iter().any(is_out)).await?;
    for name in out.iter().map(AsRef::as_ref).filter(is_out).map(ResourceExt::name_any) {
        until_leaving(&fixture, &name).await?;
    }
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(200)),
        ..TrafficBehaviour::PROMPT
    });
    fixture.kubectl(&drain).await?.succeeded()?;
    let none_is_left = |pods: &[&Pod]| !pods.iter().any(|pod| names.contains(&pod.name_any()));
    fixture.feed().until_pods("no pod is left on the node", none_is_left).await?;
    until_serving(&fixture, "web", REPLICAS).await?;
    node.remove().await?;
    other.remove().await
}

/// Returns a node with all pods of a Deployment, and another one for their replacements.
async fn two_nodes(fixture: &Fixture) -> Result<(OwnNode<'_>, OwnNode<'_>)> {
    let node = OwnNode::make(fixture, "a", 100, true).await?;
    let mut web = deployment(fixture, "web", REPLICAS);
    node.place(&mut web["spec"]["template"]["spec"]);
    make(fixture, web).await?;
    until_serving(fixture, "web", REPLICAS).await?;
    let other = OwnNode::make(fixture, "b", 100, true).await?;
    Ok((node, other))
}

/// The scheduler's victim leaves service first. Then the pod with the higher priority gets its place. The scarce
/// resource exists only in this test, so that no pod of another test can be a victim.
async fn preemption_on_a_real_node(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let node = real_node(&fixture).await?;
    let resource = format!("example.com/{}", fixture.namespace());
    let class = format!("{}-high", fixture.namespace());
    make(
        &fixture,
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        }),
    )
    .await?;
    offer(&fixture, &node, &resource, &json!("1")).await?;
    let pod = |name: &str, takes: u32, class: Option<&str>| {
        let mut pod = template(&fixture, name);
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
        make(&fixture, pod(name, takes, None)).await?;
    }
    for name in ["low", "bystander"] {
        fixture.until_available(name).await?;
    }
    let since = now(&fixture).await?;
    traffic.set_behaviour_for("low", TrafficBehaviour::NOT_DRAINED);
    make(&fixture, pod("high", 1, Some(&class))).await?;
    let leaving = until_preempted(&fixture, "low", "high").await?;
    let is_running = pods::container(&leaving).is_some_and(|container| container.ready);
    ensure!(is_running && leaving.metadata.deletion_timestamp.is_none(), "{}", pods::describe(&leaving));
    traffic.set_behaviour_for("low", TrafficBehaviour::PROMPT);
    until_gone(&fixture, "low").await?;
    fixture.feed().until_within(LONG, "high", "it is available", pods::is_available).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.order == ["low"] && seen.gone.len() == 1, "{seen:?}");
    api_of(&fixture, "scheduling.k8s.io/v1", "PriorityClass")
        .delete(&class, &DeleteParams::default())
        .await?;
    offer(&fixture, &node, &resource, &Value::Null).await
}

/// Sets the amount of the resource on the node. `null` removes it.
async fn offer(fixture: &Fixture, node: &str, resource: &str, amount: &Value) -> Result<()> {
    // The kubelet does not touch unknown resources. It would copy the capacity to the allocatable amount some seconds
    // later.
    let change = json!({"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}});
    let api = api_of(fixture, "v1", "Node");
    let patched = api.patch_status(node, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).with_context(|| format!("offer {amount} of {resource} on node {node}"))
}
