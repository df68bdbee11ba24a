//! The report on a workload: why it has no pods, why its pods wait, why its rollout does not go on.

use std::fmt::Write;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use podward_diagnosis::{Case, Cause, creation, rollout, safe_text};
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
    let mut notes = Vec::new();
    let mut causes = match kind {
        WorkloadKind::CloneSet => clone_set::causes(&parsed(&found)?, &objects),
        _ => own_causes(client, namespace, kind, &found, &params, &mut notes).await?,
    };
    let wanted = wanted(kind, &found.data);
    // Deployments report a refused creation in a condition; the other workloads only by events.
    if causes.is_empty() && kind != WorkloadKind::Deployment && all < wanted {
        let events = events_of(client, namespace, found.uid().as_deref().unwrap_or_default()).await;
        let workload = format!("{}/{name}", kind.word());
        let refused = creation::newest_refusal(read(events, "events", &mut notes), namespace, &workload);
        // A Job that has succeeded needs no pods.
        let missing = (kind != WorkloadKind::Job).then(|| {
            let object = format!("{} {namespace}/{name}", kind.word());
            Cause::new(Case::Rollout, object, format!("{all} of {wanted} pods exist"))
                .next(format!("kubectl -n {namespace} describe {} {name}", kind.word()))
        });
        causes.extend(refused.or(missing));
    }
    let mut pods = many::of_pods(client, objects).await?;
    pods.notes.append(&mut notes);
    webhooks::explain(client, &mut causes, &mut pods.notes).await;
    Ok(WorkloadReport { workload: format!("{} {namespace}/{name}", kind.word()), causes, pods })
}

/// Returns the objects. Adds to `notes` that they could not be read.
fn read<T>(objects: Result<Vec<T>>, what: &str, notes: &mut Vec<String>) -> Vec<T> {
    objects.unwrap_or_else(|error| {
        notes.push(format!("{what} could not be read: {error:#}"));
        Vec::new()
    })
}

/// Returns the causes that the object itself shows. Adds to `notes` what could not be read.
async fn own_causes(
    client: &Client,
    namespace: &str,
    kind: WorkloadKind,
    found: &DynamicObject,
    params: &ListParams,
    notes: &mut Vec<String>,
) -> Result<Vec<Cause>> {
    Ok(match kind {
        WorkloadKind::Deployment => {
            let deployment: Deployment = parsed(found)?;
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
            let sets = with_timeout(sets.list(params)).await.map(|sets| sets.items);
            rollout::of_deployment(&deployment, &read(sets, "ReplicaSets", notes))
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

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::json;

    use super::*;
    use crate::api_server;

    /// Returns the first line about a workload without pods, and the notes. What `is_forbidden` names may not be read.
    async fn told(kind: WorkloadKind, object: Value, is_forbidden: &'static str) -> (String, Vec<String>) {
        let client = api_server::client(move |request| {
            let path = request.uri().path();
            let last = path.rsplit('/').next().unwrap_or_default();
            Some(match last {
                "db" => json_answer(&object),
                last if last == is_forbidden => failure(StatusCode::FORBIDDEN, "Forbidden"),
                "pods" | "events" | "replicasets" => {
                    json_answer(&json!({"kind": "List", "metadata": {}, "items": []}))
                }
                _ => failure(StatusCode::NOT_FOUND, path),
            })
        });
        let report = report(&client, "shop", kind, "db").await.unwrap();
        let text = report.text(Timestamp::now());
        (text.lines().next().unwrap_or_default().to_owned(), report.pods.notes)
    }

    fn object(kind: &str, more: Value) -> Value {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"namespace": "shop", "name": "db", "uid": "u"},
            "spec": {
                "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}},
            },
            "status": {"replicas": 0},
        });
        json_patch::merge(&mut object, &more);
        object
    }

    #[tokio::test]
    async fn pods_that_do_not_exist_are_a_cause() {
        for (kind, name, more) in [
            (WorkloadKind::StatefulSet, "StatefulSet", json!({})),
            (WorkloadKind::ReplicaSet, "ReplicaSet", json!({})),
            (WorkloadKind::DaemonSet, "DaemonSet", json!({"status": {"desiredNumberScheduled": 3}})),
        ] {
            for is_forbidden in ["nothing", "events"] {
                let (line, notes) = told(kind, object(name, more.clone()), is_forbidden).await;
                let word = kind.word();
                let words =
                    format!("{word} shop/db: 0 of 3 pods exist; next: kubectl -n shop describe {word} db");
                assert_eq!(line, words);
                assert_eq!(notes.len(), usize::from(is_forbidden == "events"), "{notes:?}");
                assert!(notes.iter().all(|note| note.starts_with("events could not be read: ")), "{notes:?}");
            }
        }
        let job = object("Job", json!({"apiVersion": "batch/v1", "spec": {"parallelism": 1}}));
        let (line, _) = told(WorkloadKind::Job, job, "nothing").await;
        assert_eq!(line, "job shop/db: 0 pods, and nothing is wrong with them");
    }

    #[tokio::test]
    async fn a_deployment_is_explained_without_its_replica_sets() {
        let (line, notes) =
            told(WorkloadKind::Deployment, object("Deployment", json!({})), "replicasets").await;
        assert!(line.starts_with("deployment shop/db: the rollout waits for its pods"), "{line}");
        assert!(notes.len() == 1 && notes[0].starts_with("ReplicaSets could not be read: "), "{notes:?}");
    }
}
