//! Pods of CloneSets whose hook `preDelete` has not released them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use podward_core::cloneset::keys::{DELETE_HOLD, SPECIFIED_DELETE};
use podward_core::keys::CONTROL_LABEL;

use super::*;

impl Fixture {
    /// Creates the pod `web-0` of the CloneSet `web`.
    async fn clone_set_pod(&self, opted_in: bool) {
        let mut pod = Self::template();
        pod["metadata"] = json!({
            "name": "web-0",
            "labels": {"app": "web", CONTROL_LABEL: opted_in.to_string(), "in-use": "true"},
            "annotations": {DELETE_HOLD: r#"{"set": "web", "labels": {"in-use": "true"}}"#},
            "ownerReferences": [
                {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "1", "controller": true},
            ],
        });
        self.create_pod(&pod).await;
    }
}

/// The eviction reserves room when it is recorded, and releases it while the hook holds the pod.
pub(super) async fn an_eviction_waits_for_the_hook(fixture: Fixture) {
    fixture.clone_set_pod(true).await;
    fixture.until_in_service().await;
    let evict = deletion_request(DeletionKind::Evict, "drain");
    fixture.writer.request(&fixture.key("web-0"), None, &evict).await.unwrap();
    for _ in 0..5 {
        fixture.reconcile_all().await;
    }
    let pod = fixture.get("web-0").await;
    assert!(pod.labels().contains_key(&Stage::PreCheck.key("pod-delete")), "{:?}", pod.labels());
    fixture.label("web-0", json!({"in-use": null})).await;
    fixture.until("the pod is evicted", |pods| pods.is_terminating("web-0")).await;
}

/// A user has deleted the pod before. Nobody asks the hook any more.
pub(super) async fn the_garbage_collector_does_not_wait_for_the_hook(fixture: Fixture) {
    fixture.clone_set_pod(true).await;
    fixture.until_in_service().await;
    for by in ["jane", "system:serviceaccount:kube-system:generic-garbage-collector"] {
        let delete = deletion_request(DeletionKind::Delete, by);
        fixture.writer.request(&fixture.key("web-0"), None, &delete).await.unwrap();
    }
    fixture.until("the pod is deleted", |pods| pods.is_terminating("web-0")).await;
}

/// The set may delete the pod long after the eviction. Until then, the pod serves.
pub(super) async fn a_repeated_eviction_renews_the_reservation(fixture: Fixture) {
    fixture.clone_set_pod(false).await;
    let gate_on = json!({"status": {"conditions": [{"type": SERVICE_READY_GATE, "status": "True"}]}});
    fixture.api().patch_status("web-0", &PatchParams::default(), &Patch::Strategic(gate_on)).await.unwrap();
    fixture.until("the pod is Ready", |pods| pods.is_ready("web-0")).await;
    fixture.budget(json!({"minAvailable": 0}), 1).await;
    let evict = deletion_request(DeletionKind::Evict, "drain");
    let left = fixture.writer.request(&fixture.key("web-0"), None, &evict).await.unwrap();
    assert!(left.labels().contains_key(SPECIFIED_DELETE), "{:?}", left.labels());

    // The reservation was made 100 s ago.
    let before = Timestamp::now() - Duration::from_secs(100);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(fixture.client.clone(), "set-repeats");
    let older = json!({"status": {"disruptedPods": {"web-0": Time(before)}}});
    budgets.patch_status("web", &PatchParams::default(), &Patch::Merge(older)).await.unwrap();
    fixture.writer.request(&fixture.key("web-0"), None, &evict).await.unwrap();
    let Time(reserved_at) = fixture.read_budget().await.disrupted_pods.unwrap()["web-0"].clone();
    assert!(reserved_at > before + Duration::from_secs(50), "{reserved_at}");
}
