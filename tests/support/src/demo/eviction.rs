//! Evicts pods as `kubectl drain` does.
//!
//! `kubectl drain` itself would not do here: it forbids the node new pods first, and the demo has one node, so the pods that are to
//! take over would have no place.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{api::EvictParams, runtime::wait::await_condition};

use super::workload::{NAME, REPLICAS, Workload};
use crate::feed::PodFeed;

/// How long `kubectl drain` waits after a 429.
const RETRY: Duration = Duration::from_secs(5);

/// Evicts all pods, one after the other, each when the one before it has been replaced.
pub(super) async fn drain(workload: &Workload) -> Result<()> {
    for pod in workload.names() {
        // The budget's numbers follow the pods a little later; without this wait the first try would often come too early.
        let allows = |budget: Option<&PodDisruptionBudget>| {
            let status = budget.and_then(|budget| budget.status.as_ref());
            status.is_some_and(|status| status.disruptions_allowed > 0)
        };
        await_condition(workload.budgets(), NAME, allows).await.context("watch the disruption budget")?;
        evict(&workload.feed, &pod).await?;
        workload.until_in_service(REPLICAS).await?;
    }
    Ok(())
}

/// Evicts the pod, again and again while the answer is 429, until it is gone.
async fn evict(feed: &PodFeed, pod: &str) -> Result<()> {
    let gone = feed.until_pods("the evicted pod is gone", |pods| {
        pods.iter().all(|other| other.metadata.name.as_deref() != Some(pod))
    });
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
