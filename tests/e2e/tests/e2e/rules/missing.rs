//! Pods that owners want and don't have, and pods that don't run yet: both are out of service.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::{ResourceExt, api::PostParams};
use podward_core::keys;
use podward_e2e::{Scene, Test};
use serde_json::json;

use super::{
    count::outages,
    made::{at_most, finish_all, names, put, rule, rules_of, serving, until_refused, until_status},
};
use crate::deletion::made::{deployment, make, scale, until_serving};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("rules_count_replicas_that_are_missing", replicas_that_are_missing),
        Test::simulated("rules_count_pods_that_do_not_run", pods_that_do_not_run),
    ]
}

/// A Deployment that is scaled up beyond its quota has fewer pods than it wants.
async fn replicas_that_are_missing(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    make(&scene, deployment(&scene, "web", 4)).await?;
    let names = until_serving(&scene, "web", 4).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-more"}, "spec": {"hard": {"pods": "4"}},
    });
    make(&scene, quota).await?;
    put(&rules_of(&scene), rule("web", json!([at_most("two", 2.into())]))).await?;
    until_wanted(&scene, 6).await?;
    let operator = scene.operator("updater", "update");
    for name in &names {
        operator.begin(name).await?;
    }
    for name in &names {
        let missing = "[max unavailable]=2/4, [current unavailable]=0/4, [missing replicas]=2";
        until_refused(&scene, &operator, name, &["rule web/two", missing]).await?;
    }
    // One is missing: there is room for one at a time.
    until_wanted(&scene, 5).await?;
    finish_all(&scene, &operator, &names).await?;
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == 1 && outages.order.len() == 4, "{outages:?}");
    Ok(())
}

/// Scales the Deployment, and waits until its ReplicaSet wants so many.
async fn until_wanted(scene: &Scene, replicas: usize) -> Result<()> {
    scale(scene, "Deployment", "web", replicas).await?;
    let wanted = format!("--for=jsonpath={{.spec.replicas}}={replicas}");
    let said = scene.kubectl(&["wait", "replicaset", "--selector=app=web", &wanted, "--timeout=60s"]).await?;
    said.succeeded().map(drop)
}

/// Two pods that nobody starts take all room there is, until they serve.
async fn pods_that_do_not_run(scene: Arc<Scene>) -> Result<()> {
    let names = names("web", 4);
    serving(&scene, &names, json!({})).await?;
    let late = ["late-0", "late-1"];
    for name in late {
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
        let mut pod = scene.pod(name, &labels, &json!({}))?;
        let gate = k8s_openapi::api::core::v1::PodSchedulingGate { name: "podward.io/test".to_owned() };
        pod.spec.as_mut().context("a pod without a spec")?.scheduling_gates = Some(vec![gate]);
        scene.api().create(&PostParams::default(), &pod).await.context("make a pod that waits")?;
    }
    put(&rules_of(&scene), rule("web", json!([at_most("two", 2.into())]))).await?;
    until_status(&scene, "web", "it knows all pods", |status| status.target_count == Some(6)).await?;
    let operator = scene.operator("updater", "update");
    operator.begin(&names[0]).await?;
    let full = "[max unavailable]=2/6, [current unavailable]=2/6";
    until_refused(&scene, &operator, &names[0], &[full]).await?;
    for name in late {
        scene.patch(name, json!({"spec": {"schedulingGates": null}})).await?;
        scene.until_available(name).await?;
    }
    finish_all(&scene, &operator, &names[..1]).await?;
    let found = scene.feed().all();
    ensure!(found.len() == 6, "{:?}", found.iter().map(|pod| pod.name_any()).collect::<Vec<_>>());
    Ok(())
}
