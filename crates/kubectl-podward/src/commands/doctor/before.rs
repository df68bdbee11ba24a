//! `kubectl podward doctor --pre`: whether a cluster is ready for Podward, before it is installed.

mod data_planes;
mod drain_tools;
mod facts;
mod image;
mod proxies;
mod version;

use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use kube::Client;

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
    let facts = ClusterFacts::read(client).await;
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
