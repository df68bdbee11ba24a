//! The report on a workload: why it has no pods, why its pods wait, why its rollout does not go on.

use std::fmt::Write;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use podward_diagnosis::{Cause, creation, rollout, safe_text};
use serde::Serialize;
use serde_json::Value;

use super::clone_set;
use super::many::{self, PodsReport};
use super::webhooks;
use crate::api::with_timeout;
use crate::gather::events_of;
use crate::parsed::parsed;
use crate::workload;
use crate::workload_kind::WorkloadKind;

/// The causes of a workload and of its pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkloadReport {
    workload: String,
    /// The causes of the workload itself.
    causes: Vec<Cause>,
    #[serde(flatten)]
    pub(super) pods: PodsReport,
}

impl WorkloadReport {
    pub(super) fn text(&self, now: Timestamp) -> String {
        let WorkloadReport { workload, causes, pods } = self;
        let mut text = String::new();
        // A workload without pods explains itself. Otherwise its pods say more than the rollout that waits for them.
        let (first, rest) = match (causes.first(), pods.groups.first()) {
            (Some(cause), None) => (cause.line(now), causes.get(1..).unwrap_or_default()),
            (Some(cause), Some(_)) if is_first(cause) => {
                (cause.line(now), causes.get(1..).unwrap_or_default())
            }
            (_, Some(group)) => (group.line(now), causes.as_slice()),
            (None, None) => {
                (format!("{} pods, and nothing is wrong with them", pods.pods), causes.as_slice())
            }
        };
        let _ = writeln!(text, "{workload}: {}", safe_text(&first));
        for cause in causes {
            for line in &cause.evidence {
                let _ = writeln!(text, "  {}", safe_text(line));
            }
        }
        for cause in rest {
            let _ = writeln!(text, "also: {}", cause.line(now));
        }
        text + &pods.text(now)
    }
}

/// Returns whether the cause is more important than what the pods wait for.
fn is_first(cause: &Cause) -> bool {
    use podward_diagnosis::Case::{NoSurge, Rollout};

    !matches!(cause.case, Rollout | NoSurge)
}

/// Reads a workload and its pods.
pub(super) async fn report(
    client: &Client,
    namespace: &str,
    kind: WorkloadKind,
    name: &str,
) -> Result<WorkloadReport> {
    let found = workload::find(client, namespace, kind, name).await?;
    let params = workload::pods_of(&found)?;
    let objects = many::list(client, Some(namespace), params.clone()).await?;
    let all = objects.len();
    let mut causes = match kind {
        WorkloadKind::CloneSet => clone_set::causes(&parsed(&found)?, &objects),
        _ => own_causes(client, namespace, kind, &found, &params).await?,
    };
    // Deployments report a refused creation in a condition; the other workloads only by events.
    if causes.is_empty() && kind != WorkloadKind::Deployment && all < wanted(kind, &found.data) {
        causes.extend(refused(client, namespace, kind, &found).await?);
    }
    let mut pods = many::of_pods(client, objects).await?;
    webhooks::explain(client, &mut causes, &mut pods.notes).await;
    Ok(WorkloadReport { workload: format!("{} {namespace}/{name}", kind.word()), causes, pods })
}

/// Returns the causes that the object itself shows.
async fn own_causes(
    client: &Client,
    namespace: &str,
    kind: WorkloadKind,
    found: &DynamicObject,
    params: &ListParams,
) -> Result<Vec<Cause>> {
    Ok(match kind {
        WorkloadKind::Deployment => {
            let deployment: Deployment = parsed(found)?;
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
            let sets = with_timeout(sets.list(params)).await.context("list ReplicaSets")?;
            rollout::of_deployment(&deployment, &sets.items)
        }
        WorkloadKind::StatefulSet => {
            let set: StatefulSet = parsed(found)?;
            rollout::of_stateful_set(&set)
                .into_iter()
                .filter(|_| set.status.as_ref().is_some_and(|status| status.replicas > 0))
                .collect()
        }
        WorkloadKind::Job => rollout::of_job(&parsed::<Job>(found)?),
        WorkloadKind::ReplicaSet | WorkloadKind::DaemonSet | WorkloadKind::CloneSet => Vec::new(),
    })
}

/// Returns the number of pods that the workload wants.
fn wanted(kind: WorkloadKind, data: &Value) -> usize {
    let number = match kind {
        WorkloadKind::DaemonSet => &data["status"]["desiredNumberScheduled"],
        WorkloadKind::Job => &data["spec"]["parallelism"],
        _ => &data["spec"]["replicas"],
    };
    number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1)
}

/// Returns the refusal in the newest event about a pod that could not be created.
async fn refused(
    client: &Client,
    namespace: &str,
    kind: WorkloadKind,
    found: &DynamicObject,
) -> Result<Option<Cause>> {
    let events = events_of(client, namespace, found.uid().as_deref().unwrap_or_default()).await?;
    let workload = format!("{}/{}", kind.word(), found.name_any());
    Ok(creation::newest_refusal(events, namespace, &workload))
}
