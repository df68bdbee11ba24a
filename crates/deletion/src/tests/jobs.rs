//! Jobs whose controller deletes pods before it reports that the Job ends.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use kube::api::PostParams;

use super::*;

/// Creates a Job that ends by its success policy as soon as its other pod, whose name is returned, is deleted.
async fn job_that_ends(fixture: &Fixture) -> (Api<Job>, String) {
    let jobs: Api<Job> = Api::namespaced(fixture.client.clone(), &fixture.key("").namespace);
    let mut template = Fixture::template();
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "metadata": {"name": "work"},
        "spec": {
            "completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": template,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        },
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    fixture.until("both pods are in service", |pods| pods.ready() == 2).await;
    let pods = fixture.reconcile_all().await;
    let (winner, other) = (pods.names("work-0-").remove(0), pods.names("work-1-").remove(0));
    let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    fixture.api().patch_status(&winner, &PatchParams::default(), &succeeded).await.unwrap();
    let counted = async || jobs.get("work").await.unwrap().status.unwrap_or_default();
    eventually("the Job counts the pod", counted, |status| status.succeeded == Some(1)).await;
    assert_eq!(counted().await.conditions, None, "the Job does not say that it ends while a pod is active");
    (jobs, other)
}

async fn until_complete(jobs: &Api<Job>) {
    let counted = async || jobs.get("work").await.unwrap().status.unwrap_or_default();
    let is_complete = |status: &JobStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
    };
    eventually("the Job is complete", counted, is_complete).await;
}

pub(super) async fn a_job_ends_by_its_success_policy(fixture: Fixture) {
    let (jobs, other) = job_that_ends(&fixture).await;
    let delete = deletion_request(DeletionKind::Delete, JOB_CONTROLLER);
    fixture.writer.request(&fixture.key(&other), None, &delete).await.unwrap();
    fixture.until("the other pod is deleted", |pods| pods.is_terminating(&other)).await;
    until_complete(&jobs).await;
    assert_eq!(fixture.events(), ["PodDeletion"]);
}

/// The Job's controller deletes the pod after a user has. That the Job ends is stored once.
pub(super) async fn a_pod_that_a_user_has_deleted_shows_that_its_job_ends(fixture: Fixture) {
    let (jobs, other) = job_that_ends(&fixture).await;
    let pod = fixture.key(&other);
    fixture.hold(&other, CONSUMER).await;
    let by_user = deletion_request(DeletionKind::Delete, "jane");
    let recorded = fixture.writer.request(&pod, None, &by_user).await.unwrap().deletion_request().unwrap();
    assert!(!recorded.ends_workload);
    let by_job = deletion_request(DeletionKind::Delete, JOB_CONTROLLER);
    let joined = fixture.writer.request(&pod, None, &by_job).await.unwrap();
    assert_eq!(joined.deletion_request(), Some(DeletionRequest { ends_workload: true, ..recorded }));
    let again = fixture.writer.request(&pod, None, &by_job).await.unwrap();
    assert_eq!(again.resource_version(), joined.resource_version(), "nothing was written");
    fixture.release(&other, CONSUMER).await;
    fixture.until("the other pod is deleted", |pods| pods.is_terminating(&other)).await;
    until_complete(&jobs).await;
}
