//! Rollouts of Deployments whose pods are in order.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::asked::{create, deployment, server, until_first_line, until_said};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_a_rollout_has_no_room_in_a_quota", no_quota),
        Test::simulated("why_a_rollout_may_not_add_a_pod", no_surge),
        Test::simulated("why_a_rollout_makes_no_progress", no_progress),
        Test::simulated("why_a_rollout_is_paused", paused),
    ]
}

/// Creates the Deployment `web` with two pods, and waits until they are available.
async fn two_pods(fixture: &Fixture, surge: u32, unavailable: u32) -> Result<()> {
    let strategy = json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    let two = json!({"replicas": 2, "strategy": strategy});
    deployment(fixture, server(fixture, json!({}), json!({})), two).await?;
    let ready = |all: &[&Pod]| all.len() == 2 && all.iter().all(|pod| pods::is_ready(pod));
    fixture.feed().until_pods("both pods are Ready", ready).await?;
    let status = ["rollout", "status", "deployment/web", "--timeout=60s"];
    fixture.kubectl(&status).await?.succeeded().map(drop)
}

/// Changes the template of the Deployment, and other fields of its spec.
async fn update(fixture: &Fixture, mut spec: Value) -> Result<()> {
    spec["template"] = json!({"metadata": {"annotations": {"version": "2"}}});
    let patch = json!({"spec": spec}).to_string();
    fixture.kubectl(&["patch", "deployment", "web", "--patch", &patch]).await?.succeeded().map(drop)
}

async fn no_quota(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    two_pods(&fixture, 1, 0).await?;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "2"}}});
    create(&fixture, quota).await?;
    let counted = ["wait", "--for=jsonpath={.status.used.pods}=2", "resourcequota/full", "--timeout=60s"];
    fixture.kubectl(&counted).await?.succeeded()?;
    update(&fixture, json!({})).await?;
    let words = format!(
        "deployment {}/web: cannot create pods: ResourceQuota full is exhausted (requested: pods=1, used: pods=2, limited: pods=2)",
        fixture.namespace()
    );
    let room = "  the rollout has to add a pod before it removes one (maxSurge 1, maxUnavailable 0): 0 of 2 pods updated, 2 \
                available, 2 in all";
    until_said(&fixture, "deploy/web", &words, &[room]).await.map(drop)
}

/// The updated pod is Ready, and does not count as available yet.
async fn no_surge(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    two_pods(&fixture, 0, 1).await?;
    update(&fixture, json!({"minReadySeconds": 3600, "progressDeadlineSeconds": 7200})).await?;
    let words = "the rollout may not add a pod (maxSurge 0) and waits for one to be available, 3600 s (minReadySeconds) \
                 after it is Ready (1 of 2 pods updated, 1 available, 2 in all)";
    until_first_line(&fixture, "deploy/web", words).await.map(drop)
}

/// The new pods do not become Ready. What they wait for comes first.
async fn no_progress(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let gated = json!({"readinessGates": [{"conditionType": "example.com/load-balancer"}]});
    let two = json!({"replicas": 2, "progressDeadlineSeconds": 1});
    deployment(&fixture, server(&fixture, gated, json!({})), two).await?;
    let words = "the condition of its readiness gate example.com/load-balancer was never written";
    let namespace = fixture.namespace();
    let late = format!(
        "also: the rollout has made no progress for 1 s (2 of 2 pods updated, 0 available, 2 in all) ({{age}}); next: \
         kubectl -n {namespace} rollout status deployment/web; kubectl -n {namespace} rollout undo deployment/web"
    );
    let late: Vec<&str> = late.split("{age}").collect();
    until_said(&fixture, "deploy/web", words, &late).await.map(drop)
}

async fn paused(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    two_pods(&fixture, 1, 0).await?;
    update(&fixture, json!({"paused": true})).await?;
    let words = "the rollout is paused (0 of 2 pods updated, 2 available, 2 in all)";
    let said = until_first_line(&fixture, "deploy/web", words).await?;
    let next = format!("; next: kubectl -n {} rollout resume deployment/web", fixture.namespace());
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    Ok(())
}
