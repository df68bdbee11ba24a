//! Jobs whose controller deletes pods before it reports that the Job ends.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use kube::api::PostParams;

use super::*;

pub(super) async fn a_job_ends_by_its_success_policy(fixture: Fixture) {
    let jobs: Api<Job> = Api::namespaced(fixture.client.clone(), "job");
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

    let delete = deletion_request(DeletionKind::Delete, JOB_CONTROLLER);
    fixture.writer.request(&fixture.key(&other), None, &delete).await.unwrap();
    fixture.until("the other pod is deleted", |pods| pods.is_terminating(&other)).await;
    let is_complete = |status: &JobStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
    };
    eventually("the Job is complete", counted, is_complete).await;
    assert_eq!(fixture.events(), ["PodDeletion"]);
}
