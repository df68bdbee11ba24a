//! Jobs that end while their pods are in service: the Job's controller deletes the pods before it reports the end.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use podward_e2e::{Fixture, Test};
use serde_json::{Value, json};

use super::{
    kinds::slow,
    objects::{APP, make, names_of, patch, template, until_all_serve, until_serving},
    replay::{now, replay},
};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("jobs_of_every_kind_end", jobs_of_every_kind_end),
        Test::simulated("a_duplicate_index_is_deleted", a_duplicate_index_is_deleted),
    ]
}

/// A Job of two pods, and what ends it.
struct EndingJob {
    name: &'static str,
    restart_policy: &'static str,
    spec: Value,
    end: JobEnd,
    /// The condition of the Job that has ended, and its reason.
    condition: (&'static str, &'static str),
}

enum JobEnd {
    /// The first pod has this phase and exit code.
    PodFinished(&'static str, i32),
    /// The container of the first pod has been restarted.
    PodRestarted,
    /// The containers of both pods have been restarted.
    PodsRestarted,
    /// The Job gets this spec.
    Changed(Value),
}

fn ending_jobs() -> [EndingJob; 6] {
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed"});
        spec.as_object_mut()
            .into_iter()
            .for_each(|spec| spec.extend(more.as_object().cloned().unwrap_or_default()));
        spec
    };
    let on_exit = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
    [
        EndingJob {
            name: "success-policy",
            restart_policy: "Never",
            spec: indexed(json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}})),
            end: JobEnd::PodFinished("Succeeded", 0),
            condition: ("Complete", "SuccessPolicy"),
        },
        EndingJob {
            name: "fail-job",
            restart_policy: "Never",
            spec: json!({"podFailurePolicy": {"rules": [on_exit]}}),
            end: JobEnd::PodFinished("Failed", 42),
            condition: ("Failed", "PodFailurePolicy"),
        },
        EndingJob {
            name: "backoff-limit",
            restart_policy: "OnFailure",
            spec: json!({"backoffLimit": 1}),
            end: JobEnd::PodRestarted,
            condition: ("Failed", "BackoffLimitExceeded"),
        },
        EndingJob {
            name: "backoff-limit-of-two",
            restart_policy: "OnFailure",
            spec: json!({"backoffLimit": 2}),
            end: JobEnd::PodsRestarted,
            condition: ("Failed", "BackoffLimitExceeded"),
        },
        EndingJob {
            name: "max-failed",
            restart_policy: "Never",
            spec: indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0})),
            end: JobEnd::PodFinished("Failed", 1),
            condition: ("Failed", "MaxFailedIndexesExceeded"),
        },
        EndingJob {
            name: "deadline",
            restart_policy: "Never",
            spec: json!({}),
            end: JobEnd::Changed(json!({"activeDeadlineSeconds": 1})),
            condition: ("Failed", "DeadlineExceeded"),
        },
    ]
}

impl EndingJob {
    fn object(&self, fixture: &Fixture) -> Value {
        let mut pod = template(fixture, self.name);
        pod["spec"]["restartPolicy"] = json!(self.restart_policy);
        let mut job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name},
            "spec": {"parallelism": 2, "completions": 2, "template": pod},
        });
        for (key, value) in self.spec.as_object().into_iter().flatten() {
            job["spec"][key] = value.clone();
        }
        job
    }

    async fn end(&self, fixture: &Fixture) -> Result<()> {
        let mut names = names_of(fixture, self.name);
        names.sort();
        let first = names.first().with_context(|| format!("Job {} has no pod", self.name))?;
        match &self.end {
            JobEnd::PodFinished(phase, exit_code) => {
                let state = json!({"terminated": {"exitCode": exit_code}});
                set_status(fixture, first, json!({"ready": false, "state": state}), Some(phase)).await
            }
            JobEnd::PodRestarted => set_status(fixture, first, json!({"restartCount": 1}), None).await,
            JobEnd::PodsRestarted => {
                for name in &names {
                    set_status(fixture, name, json!({"restartCount": 1}), None).await?;
                }
                Ok(())
            }
            JobEnd::Changed(spec) => {
                patch(fixture, "batch/v1", "Job", self.name, &json!({"spec": spec})).await
            }
        }
    }

    fn has_ended(&self, job: &Job) -> bool {
        let status = job.status.clone().unwrap_or_default();
        let (type_, reason) = self.condition;
        status.active.unwrap_or_default() == 0
            && status.conditions.into_iter().flatten().any(|condition| {
                condition.type_ == type_
                    && condition.status == "True"
                    && condition.reason.as_deref() == Some(reason)
            })
    }
}

/// Writes the status of the pod's container, and the pod's phase.
async fn set_status(fixture: &Fixture, pod: &str, changes: Value, phase: Option<&str>) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(fixture.client(), fixture.namespace());
    let seen = pods.get(pod).await.with_context(|| format!("read pod {pod}"))?;
    let mut containers = serde_json::to_value(seen.status.and_then(|status| status.container_statuses))?;
    for (key, value) in changes.as_object().into_iter().flatten() {
        containers[0][key] = value.clone();
    }
    let mut status = json!({"containerStatuses": containers});
    if let Some(phase) = phase {
        status["phase"] = json!(phase);
    }
    let change = Patch::Merge(json!({"status": status}));
    let written = pods.patch_status(pod, &PatchParams::default(), &change).await;
    written.map(drop).with_context(|| format!("write the status of pod {pod}"))
}

/// Whatever ends a Job, its other pod leaves service and is deleted, and the Job reports its end.
async fn jobs_of_every_kind_end(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let jobs = ending_jobs();
    for job in &jobs {
        make(&fixture, job.object(&fixture)).await?;
    }
    let names: Vec<&str> = jobs.iter().map(|job| job.name).collect();
    until_all_serve(&fixture, &names, 2).await?;
    slow(&traffic);
    let since = now(&fixture).await?;
    for job in &jobs {
        job.end(&fixture).await?;
    }
    let api: Api<Job> = Api::namespaced(fixture.client(), fixture.namespace());
    for job in &jobs {
        let condition = format!("--for=condition={}", job.condition.0);
        fixture.kubectl(&["wait", "job", job.name, &condition, "--timeout=120s"]).await?.succeeded()?;
        let seen = api.get(job.name).await.with_context(|| format!("read Job {}", job.name))?;
        ensure!(job.has_ended(&seen), "Job {}: {:?}", job.name, seen.status);
    }
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left.len() >= jobs.len(), "{seen:?}");
    Ok(())
}

/// Two pods of a Job have the same index. One is deleted, and the Job continues.
async fn a_duplicate_index_is_deleted(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let job = EndingJob {
        name: "indexed",
        restart_policy: "Never",
        spec: json!({"completionMode": "Indexed"}),
        end: JobEnd::PodRestarted,
        condition: ("", ""),
    };
    make(&fixture, job.object(&fixture)).await?;
    let before: BTreeSet<String> = until_serving(&fixture, job.name, 2).await?.into_iter().collect();
    slow(&traffic);
    let since = now(&fixture).await?;
    let pods: Api<Pod> = Api::namespaced(fixture.client(), fixture.namespace());
    let original = pods.get(before.first().context("no pod")?).await.context("read a pod")?;
    let labels = original.labels().iter().filter(|(key, _)| *key == APP || key.contains("kubernetes.io/"));
    let mut copy = template(&fixture, job.name);
    copy["spec"]["restartPolicy"] = json!("Never");
    copy["metadata"]["name"] = json!("duplicate");
    copy["metadata"]["ownerReferences"] = json!(original.owner_references());
    copy["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    copy["metadata"]["annotations"][INDEX] = json!(original.annotations()[INDEX]);
    for (key, value) in labels {
        copy["metadata"]["labels"][key] = json!(value);
    }
    let copy: Pod = serde_json::from_value(copy)?;
    pods.create(&PostParams::default(), &copy).await.context("create the duplicate")?;
    let one_of_each = |pods: &[&Pod]| {
        let indexes: BTreeSet<_> = pods.iter().filter_map(|pod| pod.annotations().get(INDEX)).collect();
        pods.len() == 2 && indexes.len() == 2
    };
    fixture.feed().until_pods("the Job saw the duplicate", |pods| pods.len() == 3).await?;
    fixture.feed().until_pods("each index has one pod", one_of_each).await?;
    replay(&fixture, since, |_| true).await.map(drop)
}
