//! `kubectl drain`.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace, pods};
use serde_json::json;

use super::{
    made::{APP, deployment, make, names_of, until_leaving, until_serving},
    neighbours::OwnNode,
    replay::{now, replay},
};

const REPLICAS: usize = 3;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("drain_ends_by_itself", drain_ends_by_itself),
        Test::simulated("drain_without_eviction", drain_without_eviction),
    ]
}

/// By evictions, which kubectl repeats: it ends with 0 once consumers have let go, and the budget holds all the time.
async fn drain_ends_by_itself(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let (node, other) = set_up(&scene).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {APP: "web"}}},
    });
    make(&scene, budget).await?;
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
async fn drain_without_eviction(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let (node, other) = set_up(&scene).await?;
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
async fn set_up(scene: &Scene) -> Result<(OwnNode<'_>, OwnNode<'_>)> {
    let node = OwnNode::make(scene, "a", 100, true).await?;
    let mut web = deployment(scene, "web", REPLICAS);
    node.place(&mut web["spec"]["template"]["spec"]);
    make(scene, web).await?;
    until_serving(scene, "web", REPLICAS).await?;
    let other = OwnNode::make(scene, "b", 100, true).await?;
    Ok((node, other))
}
