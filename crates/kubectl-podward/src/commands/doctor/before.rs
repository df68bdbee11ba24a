//! `kubectl podward doctor --pre`: whether a cluster is ready for Podward, before it is installed.

mod data_planes;
mod drain_tools;
mod facts;
mod image;
mod proxies;
mod version;

use std::time::Duration;

use anyhow::anyhow;
use futures::FutureExt;
use futures::future::join_all;
use kube::Client;
use tokio::time::timeout;

use super::finding::Finding;
use super::report::CheckReport;
use super::run::{CheckFuture, run_check};
use facts::ClusterFacts;

/// Runs the checks. `image` is pulled by a pod in `probe_namespace` if it is given.
pub(super) async fn checks(
    client: &Client,
    image: Option<&str>,
    probe_namespace: &str,
    deadline: Duration,
) -> Vec<CheckReport> {
    let facts = timeout(deadline, ClusterFacts::read(client)).await;
    let facts = facts.unwrap_or_else(|_| Err(anyhow!("the API server did not answer within {deadline:?}")));
    let of_facts = |judge: fn(&ClusterFacts) -> Vec<Finding>| match &facts {
        Ok(facts) => judge(facts),
        Err(error) => vec![Finding::check_failed(error)],
    };
    let mut checks: Vec<(&'static str, CheckFuture<'_>)> = vec![
        ("version", version::check(client).boxed()),
        ("kube-proxy", async { Ok(of_facts(proxies::judge)) }.boxed()),
        ("data planes", async { Ok(of_facts(data_planes::judge)) }.boxed()),
        ("drain tools", async { Ok(of_facts(drain_tools::judge)) }.boxed()),
    ];
    if let Some(image) = image {
        checks.push(("image", image::check(client, image, probe_namespace, deadline).boxed()));
    }
    join_all(checks.into_iter().map(|(name, check)| run_check(name, check, deadline))).await
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;
    use crate::api_server;

    #[tokio::test]
    async fn without_an_answer_of_the_api_server_every_check_fails() {
        let client = api_server::client(|_| None);
        let checks = checks(&client, None, "default", Duration::from_millis(10));
        let checks = timeout(Duration::from_secs(5), checks).await.expect("the checks end");
        assert_eq!(checks.len(), 4);
        let failed = |check: &CheckReport| check.findings.iter().all(|it| it.level == FindingLevel::Failed);
        assert!(checks.iter().all(failed), "{checks:?}");
    }
}
