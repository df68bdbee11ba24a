//! Rolling updates of Deployments.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficPace, pods};
use serde_json::{Value, json};

use super::{
    objects::{
        APP, LONG, deployment, deployment_now, is_delete_requested, is_of, make, names_of, patch, restart,
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

/// For any surge and any number of unavailable pods: never fewer Ready than allowed, and exactly the old pods are
/// deleted.
async fn rolling_updates_keep_their_bounds(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let strategies = [
        ("none-one", json!(0), json!(1), 1),
        ("one-none", json!(1), json!(0), 0),
        ("quarter", json!("25%"), json!("25%"), 1),
        ("two-two", json!(2), json!(2), 2),
    ];
    let apps: Vec<&str> = strategies.iter().map(|(app, ..)| *app).collect();
    for (app, surge, unavailable, _) in &strategies {
        make(&fixture, rolling(&fixture, app, surge, unavailable)).await?;
    }
    until_all_serve(&fixture, &apps, REPLICAS).await?;
    let before: Vec<BTreeSet<String>> =
        apps.iter().map(|app| names_of(&fixture, app).into_iter().collect()).collect();
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(200)),
        ..TrafficBehaviour::PROMPT
    });
    let since = now(&fixture).await?;
    try_join_all(apps.iter().map(|app| restart(&fixture, "Deployment", app))).await?;
    try_join_all(apps.iter().map(|app| until_rolled_out(&fixture, app))).await?;
    until_all_serve(&fixture, &apps, REPLICAS).await?;
    for ((app, _, _, unavailable), before) in strategies.iter().zip(&before) {
        let prefix = format!("{app}-");
        let seen = replay(&fixture, since, |name| name.starts_with(&prefix)).await?;
        ensure!(seen.fewest_ready >= REPLICAS - unavailable, "{app}: only {} were Ready", seen.fewest_ready);
        ensure!(seen.gone == *before, "{app}: had {before:?}, and gone are {:?}", seen.gone);
        ensure!(seen.left == *before, "{app}: had {before:?}, and out of service were {:?}", seen.left);
    }
    Ok(())
}

/// Consumers hold old pods for longer than new ones take to start.
async fn rolling_update_with_slow_consumers(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, rolling(&fixture, "web", &json!(1), &json!(0))).await?;
    let before: BTreeSet<String> = until_serving(&fixture, "web", REPLICAS).await?.into_iter().collect();
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_secs(4)),
        ..TrafficBehaviour::PROMPT
    });
    let since = now(&fixture).await?;
    restart(&fixture, "Deployment", "web").await?;
    until_rolled_out(&fixture, "web").await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_serving(&fixture, "web", REPLICAS).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.fewest_ready >= REPLICAS, "only {} were Ready", seen.fewest_ready);
    ensure!(seen.gone == before, "had {before:?}, and gone are {:?}", seen.gone);
    Ok(())
}

/// A hook is called before the gate and does not answer: pods that will be deleted stay Ready, so their Deployment
/// counts them as available. When the hook releases all of them at once, enough others are Ready.
async fn rolling_update_with_pods_that_wait_in_service(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    make(&fixture, unreachable_hook(&fixture, "web", &["Prepare"])).await?;
    let mut web = rolling(&fixture, "web", &json!(1), &json!(0));
    // No new pod may start in time to replace an old one.
    web["spec"]["template"]["metadata"]["annotations"]["simulate.podward.io/start-seconds"] = json!("4");
    make(&fixture, web).await?;
    let before: BTreeSet<String> = until_serving(&fixture, "web", REPLICAS).await?.into_iter().collect();
    let since = now(&fixture).await?;
    restart(&fixture, "Deployment", "web").await?;
    let waits = |pods: &[&Pod]| {
        let is_new = |pod: &Pod| !before.contains(&pod.name_any());
        let new = pods.iter().filter(|pod| is_new(pod) && pods::is_ready(pod)).count();
        let waiting = pods.iter().filter(|pod| is_delete_requested(pod) && pods::is_ready(pod)).count();
        new == 2 && waiting > 0
    };
    fixture.feed().until_pods_within(LONG, "old pods wait beside two new ones", waits).await?;
    fixture.kubectl(&["delete", "lifecyclehook", fixture.namespace()]).await?.succeeded()?;
    until_rolled_out(&fixture, "web").await?;
    until_serving(&fixture, "web", REPLICAS).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.fewest_ready >= REPLICAS, "only {} were Ready", seen.fewest_ready);
    ensure!(seen.gone == before, "had {before:?}, and gone are {:?}", seen.gone);
    Ok(())
}

async fn rollout_restart_ends_by_itself(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, deployment(&fixture, "web", 2)).await?;
    let before: BTreeSet<String> = until_serving(&fixture, "web", 2).await?.into_iter().collect();
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_secs(1)),
        ..TrafficBehaviour::PROMPT
    });
    fixture.kubectl(&["rollout", "restart", "deployment", "web"]).await?.succeeded()?;
    fixture.kubectl(&["rollout", "status", "deployment", "web", "--timeout=100s"]).await?.succeeded()?;
    let after: BTreeSet<String> = until_serving(&fixture, "web", 2).await?.into_iter().collect();
    ensure!(before.is_disjoint(&after), "an old pod is left: {after:?}");
    Ok(())
}

/// A hook has not added the new pod to traffic, so the pod is not Ready, and the update stops by itself. When the
/// hook is not expected any more, the update continues. An update of another Deployment, without the hook, shows that
/// all controllers work in between.
async fn rolling_update_waits_for_new_pods(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    for app in ["web", "other"] {
        make(&fixture, rolling(&fixture, app, &json!(1), &json!(0))).await?;
    }
    until_all_serve(&fixture, &["web", "other"], REPLICAS).await?;
    let before: BTreeSet<String> = names_of(&fixture, "web").into_iter().collect();
    let hook = fixture.namespace();
    make(&fixture, unreachable_hook(&fixture, "web", &["Prepare", "Complete"])).await?;
    let since = now(&fixture).await?;
    restart(&fixture, "Deployment", "web").await?;
    let waits = |pods: &[&Pod]| {
        let mut new = pods.iter().filter(|pod| is_of(pod, "web") && !before.contains(&pod.name_any()));
        new.any(|pod| told(pod).is_some_and(|told| told.contains(hook)))
    };
    let found = fixture.feed().until_pods("a new pod waits for the hook", waits).await?;
    let new: Vec<_> =
        found.iter().filter(|pod| is_of(pod, "web") && !before.contains(&pod.name_any())).collect();
    ensure!(new.len() == 1 && !pods::is_ready(new[0]), "{} new pods", new.len());
    restart(&fixture, "Deployment", "other").await?;
    until_rolled_out(&fixture, "other").await?;

    let status = deployment_now(&fixture, "web").await?.status.context("it has no status")?;
    let numbers = (status.updated_replicas, status.available_replicas);
    ensure!(numbers == (Some(1), Some(4)), "updated and available: {numbers:?}");
    let seen = replay(&fixture, since, |name| before.contains(name)).await?;
    ensure!(
        seen.left.is_empty(),
        "old pods left service before the new one was added to traffic: {:?}",
        seen.left
    );
    let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
    patch(&fixture, "podward.io/v1alpha1", "LifecycleHook", hook, &ignore).await?;
    until_rolled_out(&fixture, "web").await?;
    fixture.kubectl(&["delete", "lifecyclehook", hook]).await?.succeeded()?;
    until_serving(&fixture, "web", REPLICAS).await?;
    let seen = replay(&fixture, since, |name| name.starts_with("web-")).await?;
    ensure!(seen.gone == before && seen.fewest_ready >= REPLICAS, "{seen:?}");
    Ok(())
}

/// Returns a Deployment with this strategy.
fn rolling(fixture: &Fixture, name: &str, surge: &Value, unavailable: &Value) -> Value {
    let mut made = deployment(fixture, name, REPLICAS);
    let bounds = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    made["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
    made
}

/// Creates a hook that cannot be reached, so that its pods wait for it.
fn unreachable_hook(fixture: &Fixture, app: &str, phases: &[&str]) -> Value {
    json!({
        "apiVersion": "podward.io/v1alpha1",
        "kind": "LifecycleHook",
        "metadata": {"name": fixture.namespace()},
        "spec": {
            "podSelector": {"matchLabels": {APP: app}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fixture.namespace()}},
            "phases": phases,
            "endpoint": {"url": "https://127.0.0.1:1"},
            "prepareTiming": "BeforeGate",
            "completeTiming": "BeforeGate",
            "deadlineSeconds": 600,
        },
    })
}

/// Returns what the pod waits for.
fn told(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == keys::LIFECYCLE_CONDITION)?.message.as_deref()
}
