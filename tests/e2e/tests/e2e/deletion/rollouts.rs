//! Rolling updates of Deployments.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys;
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace, pods};
use serde_json::{Value, json};

use super::{
    made::{
        APP, LONG, deployment, deployment_now, is_of, is_wished, make, names_of, patch, restart,
        until_all_serve, until_rolled_out, until_serving,
    },
    replay::{now, replay},
};

const REPLICAS: usize = 4;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("rolling_updates_keep_their_bounds", rolling_updates_keep_their_bounds),
        Test::simulated("rolling_update_with_slow_consumers", rolling_update_with_slow_consumers),
        Test::simulated(
            "rolling_update_with_pods_that_wait_in_service",
            rolling_update_with_pods_that_wait_in_service,
        ),
        Test::node("rollout_restart_ends_by_itself", rollout_restart_ends_by_itself),
        Test::simulated("rolling_update_waits_for_new_pods", rolling_update_waits_for_new_pods),
    ]
}

/// Any surge and any number of unavailable pods: never fewer Ready than that allows, and exactly the old pods go.
async fn rolling_updates_keep_their_bounds(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let strategies = [
        ("none-one", json!(0), json!(1), 1),
        ("one-none", json!(1), json!(0), 0),
        ("quarter", json!("25%"), json!("25%"), 1),
        ("two-two", json!(2), json!(2), 2),
    ];
    let apps: Vec<&str> = strategies.iter().map(|(app, ..)| *app).collect();
    for (app, surge, unavailable, _) in &strategies {
        make(&scene, rolling(&scene, app, surge, unavailable)).await?;
    }
    until_all_serve(&scene, &apps, REPLICAS).await?;
    let before: Vec<BTreeSet<String>> =
        apps.iter().map(|app| names_of(&scene, app).into_iter().collect()).collect();
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(200)), ..Behaviour::PROMPT });
    let since = now(&scene).await?;
    try_join_all(apps.iter().map(|app| restart(&scene, "Deployment", app))).await?;
    try_join_all(apps.iter().map(|app| until_rolled_out(&scene, app))).await?;
    until_all_serve(&scene, &apps, REPLICAS).await?;
    for ((app, _, _, unavailable), before) in strategies.iter().zip(&before) {
        let prefix = format!("{app}-");
        let seen = replay(&scene, since, |name| name.starts_with(&prefix)).await?;
        ensure!(seen.fewest_ready >= REPLICAS - unavailable, "{app}: only {} were Ready", seen.fewest_ready);
        ensure!(seen.gone == *before, "{app}: had {before:?}, and gone are {:?}", seen.gone);
        ensure!(seen.left == *before, "{app}: had {before:?}, and out of service were {:?}", seen.left);
    }
    Ok(())
}

/// Consumers hold old pods for longer than new ones take to come up.
async fn rolling_update_with_slow_consumers(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    make(&scene, rolling(&scene, "web", &json!(1), &json!(0))).await?;
    let before: BTreeSet<String> = until_serving(&scene, "web", REPLICAS).await?.into_iter().collect();
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_secs(4)), ..Behaviour::PROMPT });
    let since = now(&scene).await?;
    restart(&scene, "Deployment", "web").await?;
    until_rolled_out(&scene, "web").await?;
    traffic.behave(Behaviour::PROMPT);
    until_serving(&scene, "web", REPLICAS).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.fewest_ready >= REPLICAS, "only {} were Ready", seen.fewest_ready);
    ensure!(seen.gone == before, "had {before:?}, and gone are {:?}", seen.gone);
    Ok(())
}

/// A hook is asked before the gate, and doesn't answer: pods that are to go stay Ready, so their Deployment counts them as available.
/// When the hook lets all of them go at the same moment enough others are Ready.
async fn rolling_update_with_pods_that_wait_in_service(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    make(&scene, unreachable_hook(&scene, "web", &["Prepare"])).await?;
    let mut web = rolling(&scene, "web", &json!(1), &json!(0));
    // So that no new pod comes up in time to make up for an old one.
    web["spec"]["template"]["metadata"]["annotations"]["simulate.podward.io/start-seconds"] = json!("4");
    make(&scene, web).await?;
    let before: BTreeSet<String> = until_serving(&scene, "web", REPLICAS).await?.into_iter().collect();
    let since = now(&scene).await?;
    restart(&scene, "Deployment", "web").await?;
    let waits = |pods: &[&Pod]| {
        let is_new = |pod: &Pod| !before.contains(&pod.name_any());
        let new = pods.iter().filter(|pod| is_new(pod) && pods::is_ready(pod)).count();
        let waiting = pods.iter().filter(|pod| is_wished(pod) && pods::is_ready(pod)).count();
        new == 2 && waiting > 0
    };
    scene.feed().until_pods_within(LONG, "old pods wait beside two new ones", waits).await?;
    scene.kubectl(&["delete", "lifecyclehook", scene.namespace()]).await?.succeeded()?;
    until_rolled_out(&scene, "web").await?;
    until_serving(&scene, "web", REPLICAS).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.fewest_ready >= REPLICAS, "only {} were Ready", seen.fewest_ready);
    ensure!(seen.gone == before, "had {before:?}, and gone are {:?}", seen.gone);
    Ok(())
}

async fn rollout_restart_ends_by_itself(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    make(&scene, deployment(&scene, "web", 2)).await?;
    let before: BTreeSet<String> = until_serving(&scene, "web", 2).await?.into_iter().collect();
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_secs(1)), ..Behaviour::PROMPT });
    scene.kubectl(&["rollout", "restart", "deployment", "web"]).await?.succeeded()?;
    scene.kubectl(&["rollout", "status", "deployment", "web", "--timeout=100s"]).await?.succeeded()?;
    let after: BTreeSet<String> = until_serving(&scene, "web", 2).await?.into_iter().collect();
    ensure!(before.is_disjoint(&after), "an old pod is left: {after:?}");
    Ok(())
}

/// A hook has not taken the new pod in, so the pod is not Ready, and the update stops by itself; when the hook is not waited for any
/// more it goes on. Another update, which the hook doesn't concern, shows that all controllers are at work in between.
async fn rolling_update_waits_for_new_pods(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    for app in ["web", "other"] {
        make(&scene, rolling(&scene, app, &json!(1), &json!(0))).await?;
    }
    until_all_serve(&scene, &["web", "other"], REPLICAS).await?;
    let before: BTreeSet<String> = names_of(&scene, "web").into_iter().collect();
    let hook = scene.namespace();
    make(&scene, unreachable_hook(&scene, "web", &["Prepare", "Complete"])).await?;
    let since = now(&scene).await?;
    restart(&scene, "Deployment", "web").await?;
    let waits = |pods: &[&Pod]| {
        let mut new = pods.iter().filter(|pod| is_of(pod, "web") && !before.contains(&pod.name_any()));
        new.any(|pod| told(pod).is_some_and(|told| told.contains(hook)))
    };
    let found = scene.feed().until_pods("a new pod waits for the hook", waits).await?;
    let new: Vec<_> =
        found.iter().filter(|pod| is_of(pod, "web") && !before.contains(&pod.name_any())).collect();
    ensure!(new.len() == 1 && !pods::is_ready(new[0]), "{} new pods", new.len());
    restart(&scene, "Deployment", "other").await?;
    until_rolled_out(&scene, "other").await?;

    let status = deployment_now(&scene, "web").await?.status.context("it has no status")?;
    let numbers = (status.updated_replicas, status.available_replicas);
    ensure!(numbers == (Some(1), Some(4)), "updated and available: {numbers:?}");
    let seen = replay(&scene, since, |name| before.contains(name)).await?;
    ensure!(seen.left.is_empty(), "old pods left service before the new one was taken in: {:?}", seen.left);
    let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
    patch(&scene, "podward.io/v1alpha1", "LifecycleHook", hook, &ignore).await?;
    until_rolled_out(&scene, "web").await?;
    scene.kubectl(&["delete", "lifecyclehook", hook]).await?.succeeded()?;
    until_serving(&scene, "web", REPLICAS).await?;
    let seen = replay(&scene, since, |name| name.starts_with("web-")).await?;
    ensure!(seen.gone == before && seen.fewest_ready >= REPLICAS, "{seen:?}");
    Ok(())
}

/// A Deployment with this strategy.
fn rolling(scene: &Scene, name: &str, surge: &Value, unavailable: &Value) -> Value {
    let mut made = deployment(scene, name, REPLICAS);
    let bounds = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    made["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
    made
}

/// A hook that can't be reached, so that everybody waits for it.
fn unreachable_hook(scene: &Scene, app: &str, phases: &[&str]) -> Value {
    json!({
        "apiVersion": "podward.io/v1alpha1",
        "kind": "LifecycleHook",
        "metadata": {"name": scene.namespace()},
        "spec": {
            "podSelector": {"matchLabels": {APP: app}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace()}},
            "phases": phases,
            "endpoint": {"url": "https://127.0.0.1:1"},
            "prepareTiming": "BeforeGate",
            "completeTiming": "BeforeGate",
            "deadlineSeconds": 600,
        },
    })
}

/// What the pod says that it waits for.
fn told(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == keys::LIFECYCLE_CONDITION)?.message.as_deref()
}
