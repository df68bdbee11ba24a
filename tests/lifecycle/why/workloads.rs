//! Rollouts, Jobs and lists of pods.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{create, deployment, pod, server, until_first_line, until_said};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("why_a_rollout_does_not_go_on", rollout),
        Test::node("why_a_job_has_given_up", job),
        Test::simulated("why_a_budget_allows_no_eviction", budget),
    ]
}

/// The pods of a rollout are summarized: they share a cause.
async fn rollout(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let never = json!({"image": "shop/web:none", "imagePullPolicy": "Never"});
    let strategy = json!({"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}});
    let two = json!({"replicas": 2, "strategy": strategy});
    deployment(&fixture, server(&fixture, json!({}), never), two).await?;
    let shared = "the image shop/web:none of container server is not on the node";
    let counted = "also: the rollout waits for its pods (2 of 2 pods updated, 0 available, 2 in all)";
    let said = until_said(&fixture, "deploy/web", "(and 1 more pod)", &[shared, counted]).await?;
    ensure!(said.starts_with(&format!("deployment {}/web: pod ", fixture.namespace())), "{said}");
    pod(&fixture, "fine", json!({}), json!({})).await?;
    fixture.feed().until("fine", "it is Ready", podward_support::pods::is_ready).await?;
    let said = fixture.plugin(&["why", "--selector=app in (web,fine)"]).await?.succeeded()?.said;
    ensure!(said.ends_with("2 of 3 pods wait\n"), "{said}");
    let said = fixture.plugin(&["why", "fine"]).await?.succeeded()?.said;
    ensure!(said.contains("the pod has not opted in"), "{said}");
    let pause =
        json!({"spec": {"paused": true, "template": {"metadata": {"annotations": {"a": "b"}}}}}).to_string();
    fixture.kubectl(&["patch", "deployment", "web", "--patch", &pause]).await?.succeeded()?;
    until_first_line(&fixture, "deploy/web", "the rollout is paused").await.map(drop)
}

async fn job(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let mut spec =
        server(&fixture, json!({"restartPolicy": "Never"}), json!({"args": ["--there-is-no-such-argument"]}));
    spec["containers"][0]["readinessProbe"] = json!(null);
    create(
        &fixture,
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "report"},
            "spec": {"backoffLimit": 0, "template": {"spec": spec}},
        }),
    )
    .await?;
    let said = until_first_line(
        &fixture,
        "job/report",
        "the Job has given up: its pods failed more often than backoffLimit 0",
    )
    .await?;
    ensure!(said.contains("without ttlSecondsAfterFinished"), "{said}");
    Ok(())
}

async fn budget(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    pod(&fixture, "web", json!({}), json!({})).await?;
    fixture.feed().until("web", "it is Ready", podward_support::pods::is_ready).await?;
    let budget = |name: &str| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        })
    };
    create(&fixture, budget("web")).await?;
    let words =
        "is Ready; PodDisruptionBudget web allows no eviction: 1 of 1 pods are healthy, and 1 have to be";
    until_first_line(&fixture, "web", words).await?;
    create(&fixture, budget("other")).await?;
    let words = "is Ready; more than one PodDisruptionBudget selects it (other, web), so the API server rejects evictions";
    until_first_line(&fixture, "web", words).await.map(drop)
}
