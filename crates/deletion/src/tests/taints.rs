//! Deletes because of a NoExecute taint, by a kube-controller-manager with one user for all its controllers.

use super::*;

const SHARED_USER: &str = "system:kube-controller-manager";

/// The ReplicaSet wants all its pods, so that a delete by its own controller is refused.
pub(super) async fn a_taint_eviction_is_no_scale_in(fixture: Fixture) {
    let pods = fixture.replica_set(2).await;
    fixture.until("all are available", |seen| seen.available() == 2).await;
    let (pod, delete) = (fixture.key(&pods[0]), deletion_request(DeletionKind::Delete, SHARED_USER));
    let refused = fixture.writer.request(&pod, None, &delete).await;
    assert!(matches!(&refused, Err(DeletionRefusal::NoRoom(_))), "{refused:?}");

    // Without a recent time, the disruption controller resets the condition.
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "lastTransitionTime": jiff::Timestamp::now(),
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    fixture.api().patch_status(&pods[0], &PatchParams::default(), &patch).await.unwrap();
    fixture.writer.request(&pod, None, &delete).await.unwrap();
    fixture.until("the pod is deleted", |seen| seen.is_terminating(&pods[0])).await;
}
