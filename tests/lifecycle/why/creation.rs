//! Pods that are not created.

use std::sync::Arc;

use anyhow::Result;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{create, deployment, server, until_first_line};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_a_quota_refuses_pods", quota),
        Test::simulated("why_a_limit_range_refuses_pods", limit_range),
        Test::simulated("why_pod_security_refuses_pods", pod_security),
        Test::simulated("why_an_account_is_missing", account),
    ]
}

async fn quota(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    create(
        &fixture,
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}),
    )
    .await?;
    deployment(&fixture, server(&fixture, json!({}), json!({})), json!({})).await?;
    let words = "ResourceQuota small is exhausted (requested: pods=1, used: pods=0, limited: pods=0)";
    let said = until_first_line(&fixture, "deploy/web", words).await?;
    let next = format!("next: kubectl -n {} describe resourcequota small", fixture.namespace());
    anyhow::ensure!(said.contains(&next), "{said}");
    // Other workloads report it by events only.
    let spec = server(&fixture, json!({}), json!({}));
    create(
        &fixture,
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {
                "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": spec},
            },
        }),
    )
    .await?;
    until_first_line(&fixture, "sts/db", words).await.map(drop)
}

async fn limit_range(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let limit = json!({"type": "Container", "max": {"memory": "64Mi"}});
    create(
        &fixture,
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": [limit]}}),
    )
    .await?;
    let wants = json!({"resources": {"limits": {"memory": "1Gi"}}});
    deployment(&fixture, server(&fixture, json!({}), wants), json!({})).await?;
    let words = "a LimitRange forbids it: maximum memory usage per Container is 64Mi, but limit is 1Gi";
    until_first_line(&fixture, "deploy/web", words).await.map(drop)
}

async fn pod_security(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let label = "pod-security.kubernetes.io/enforce=restricted";
    fixture.kubectl(&["label", "namespace", fixture.namespace(), label]).await?.succeeded()?;
    deployment(&fixture, server(&fixture, json!({"hostNetwork": true}), json!({})), json!({})).await?;
    until_first_line(&fixture, "deploy/web", "Pod Security (restricted:latest) forbids host namespaces")
        .await
        .map(drop)
}

async fn account(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    deployment(&fixture, server(&fixture, json!({"serviceAccountName": "robot"}), json!({})), json!({}))
        .await?;
    until_first_line(&fixture, "deploy/web", "ServiceAccount robot does not exist").await.map(drop)
}
