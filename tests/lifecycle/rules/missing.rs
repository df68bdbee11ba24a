//! Missing pods of an owner, and pods that do not run yet: both count as unavailable.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::{ResourceExt, api::PostParams};
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::{
    objects::{at_most, finish_all, names, put, rule, rules_of, serving, until_refused, until_status},
    unavailable_pods::outages,
};
use crate::deletion::objects::{deployment, make, scale, until_serving};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("rules_count_replicas_that_are_missing", replicas_that_are_missing),
        Test::simulated("rules_count_pods_that_do_not_run", pods_that_do_not_run),
    ]
}

/// A Deployment that is scaled up beyond its quota has fewer pods than desired.
async fn replicas_that_are_missing(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    make(&fixture, deployment(&fixture, "web", 4)).await?;
    let names = until_serving(&fixture, "web", 4).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-more"}, "spec": {"hard": {"pods": "4"}},
    });
    make(&fixture, quota).await?;
    put(&rules_of(&fixture), rule("web", json!([at_most("two", 2.into())]))).await?;
    until_wanted(&fixture, 6).await?;
    let operator = fixture.operator("updater", "update");
    for name in &names {
        operator.begin(name).await?;
    }
    for name in &names {
        let missing = "[max unavailable]=2/4, [current unavailable]=0/4, [missing replicas]=2";
        until_refused(&fixture, &operator, name, &["rule web/two", missing]).await?;
    }
    // One is missing, so that one pod at a time is allowed.
    until_wanted(&fixture, 5).await?;
    finish_all(&fixture, &operator, &names).await?;
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == 1 && outages.order.len() == 4, "{outages:?}");
    Ok(())
}

/// Scales the Deployment, and waits until its ReplicaSet has the new size.
async fn until_wanted(fixture: &Fixture, replicas: usize) -> Result<()> {
    scale(fixture, "Deployment", "web", replicas).await?;
    let wanted = format!("--for=jsonpath={{.spec.replicas}}={replicas}");
    let said =
        fixture.kubectl(&["wait", "replicaset", "--selector=app=web", &wanted, "--timeout=60s"]).await?;
    said.succeeded().map(drop)
}

/// Two pods that do not start use up the limit until they are available.
async fn pods_that_do_not_run(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 4);
    serving(&fixture, &names, json!({})).await?;
    let late = ["late-0", "late-1"];
    for name in late {
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
        let mut pod = fixture.pod(name, &labels, &json!({}))?;
        let gate = k8s_openapi::api::core::v1::PodSchedulingGate { name: "podward.io/test".to_owned() };
        pod.spec.as_mut().context("a pod without a spec")?.scheduling_gates = Some(vec![gate]);
        fixture.api().create(&PostParams::default(), &pod).await.context("make a pod that waits")?;
    }
    put(&rules_of(&fixture), rule("web", json!([at_most("two", 2.into())]))).await?;
    until_status(&fixture, "web", "it knows all pods", |status| status.target_count == Some(6)).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin(&names[0]).await?;
    let full = "[max unavailable]=2/6, [current unavailable]=2/6";
    until_refused(&fixture, &operator, &names[0], &[full]).await?;
    for name in late {
        fixture.patch(name, json!({"spec": {"schedulingGates": null}})).await?;
        fixture.until_available(name).await?;
    }
    finish_all(&fixture, &operator, &names[..1]).await?;
    let found = fixture.feed().all();
    ensure!(found.len() == 6, "{:?}", found.iter().map(|pod| pod.name_any()).collect::<Vec<_>>());
    Ok(())
}
