//! Evicts pods as `kubectl drain` does.
//!
//! The demo cannot use `kubectl drain` itself: it cordons the node first, and the demo usually has one node, so that
//! there would be no node for the replacement pods.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::EvictParams;

use super::workload::{DemoWorkload, NAME};
use crate::watched::await_condition;

/// The time that `kubectl drain` waits after a 429.
const RETRY: Duration = Duration::from_secs(5);

/// Evicts all pods one after the other. Each eviction waits until the pod before it is replaced.
pub(super) async fn drain(workload: &DemoWorkload) -> Result<()> {
    for pod in workload.names() {
        // The status of the budget follows the pods with a delay. Without this wait, the first eviction is often too
        // early.
        let allows = |budget: Option<&PodDisruptionBudget>| {
            let status = budget.and_then(|budget| budget.status.as_ref());
            status.is_some_and(|status| status.disruptions_allowed > 0)
        };
        await_condition(workload.budgets(), NAME, allows).await.context("watch the disruption budget")?;
        evict(workload, &pod).await?;
        workload.until_in_service(workload.replicas()).await?;
    }
    Ok(())
}

/// Evicts the pod until it is gone, and tries again while the response is 429.
async fn evict(workload: &DemoWorkload, pod: &str) -> Result<()> {
    let feed = &workload.feed;
    let is_gone = |pods: &[&Pod]| pods.iter().all(|other| other.metadata.name.as_deref() != Some(pod));
    let gone = feed.until_pods_within(workload.longest(), "the evicted pod is gone", is_gone);
    let evictions = async {
        loop {
            match feed.api().evict(pod, &EvictParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(RETRY).await,
                Err(kube::Error::Api(status)) if status.is_not_found() => std::future::pending().await,
                Ok(_) => std::future::pending().await,
                Err(error) => break error,
            }
        }
    };
    tokio::select! {
        gone = gone => gone.map(drop),
        error = evictions => bail!("evict pod {}/{pod}: {error}", feed.namespace()),
    }
}
