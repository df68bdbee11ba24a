//! Deletions of busy pods.

use super::*;

/// The budget allows one of three pods to go. A request for a busy pod reserves no room, and releases room that was
/// reserved before the pod became busy.
pub(super) async fn busy_pods_reserve_no_room(fixture: Fixture) {
    fixture.pods(3).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 2}), 1).await;
    let evict = deletion_request(DeletionKind::Evict, "drain");
    fixture.busy("web-0", true).await;
    let recorded = fixture.writer.request(&fixture.key("web-0"), None, &evict).await.unwrap();
    assert_eq!(recorded.deletion_request().unwrap().reserved_at, None);
    for _ in 0..5 {
        assert_eq!(fixture.reconcile_all().await.ready(), 3, "a busy pod left service");
        assert_eq!(fixture.read_budget().await.disruptions_allowed, 1);
    }
    let held = fixture.get("web-0").await;
    assert!(held.labels().contains_key(&Stage::PreCheck.key("pod-delete")), "{:?}", held.labels());

    let taken = fixture.writer.request(&fixture.key("web-1"), None, &evict).await.unwrap();
    assert!(taken.deletion_request().unwrap().reserved_at.is_some());
    assert_eq!(fixture.read_budget().await.disruptions_allowed, 0);
    fixture.busy("web-1", true).await;
    fixture.reconcile_all().await;
    let allows = async || fixture.read_budget().await;
    let status = eventually("the room is released", allows, |status| status.disruptions_allowed == 1).await;
    assert!(status.disrupted_pods.unwrap_or_default().is_empty());

    fixture.busy("web-1", false).await;
    fixture.until("the pod that is no longer busy is evicted", |pods| pods.is_terminating("web-1")).await;
    fixture.busy("web-0", false).await;
    for _ in 0..5 {
        assert!(fixture.reconcile_all().await.is_ready("web-0"), "the pod left service without room");
    }
    assert_eq!(fixture.events(), ["PodEvicted"]);
}

/// A ReplicaSet controller that has not observed yet that its pod is busy chooses again, while other pods are idle.
pub(super) async fn a_controller_chooses_again_when_its_pod_became_busy(fixture: Fixture) {
    let pods = fixture.replica_set(3).await;
    fixture.until("all are available", |seen| seen.available() == 3).await;
    for name in &pods[..2] {
        fixture.busy(name, true).await;
    }
    fixture.scale(2).await;
    let delete = deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER);
    let refused = fixture.writer.request(&fixture.key(&pods[0]), None, &delete).await;
    assert!(
        matches!(&refused, Err(DeletionRefusal::NoRoom(text)) if text.contains("busy until")),
        "{refused:?}"
    );
    assert!(!fixture.get(&pods[0]).await.annotations().contains_key(DELETION_REQUEST));
    // A request of a user is not refused.
    let person = fixture
        .writer
        .request(&fixture.key(&pods[1]), None, &deletion_request(DeletionKind::Delete, "jane"))
        .await;
    assert!(person.is_ok(), "{person:?}");
    fixture.label(&pods[1], json!({TO_DELETE: null})).await;
    let marks = async || fixture.reconcile_all().await.requests();
    eventually("the request is cancelled", marks, |requests| *requests == 0).await;

    fixture.writer.request(&fixture.key(&pods[2]), None, &delete).await.unwrap();
    fixture.until("the idle pod is deleted", |seen| seen.is_terminating(&pods[2])).await;
    let seen = fixture.reconcile_all().await;
    assert!(pods[..2].iter().all(|name| seen.is_ready(name)));
    // If no pod is idle, a busy pod is chosen and waits.
    fixture.scale(1).await;
    fixture.writer.request(&fixture.key(&pods[0]), None, &delete).await.unwrap();
    for _ in 0..5 {
        assert!(fixture.reconcile_all().await.is_ready(&pods[0]), "a busy pod left service");
    }
    fixture.busy(&pods[0], false).await;
    fixture.until("the pod is deleted when it is no longer busy", |seen| seen.is_terminating(&pods[0])).await;
}

/// The budget allows one of two pods to go. A denied eviction leaves the room to others for as long as the denial lasts.
pub(super) async fn a_denied_eviction_waits_without_room(fixture: Fixture) {
    let fixture = fixture.with_dry_runs();
    fixture.pods(2).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 1}), 1).await;
    // The API server denies the eviction to mallory, who has no rights.
    let evict = DeletionRequest::new(DeletionKind::Evict, "mallory", UnixNanos(0));
    let taken = fixture.writer.request(&fixture.key("web-0"), None, &evict).await.unwrap();
    assert!(taken.deletion_request().unwrap().reserved_at.is_some());
    fixture.reconcile_all().await;
    let allows = async || fixture.read_budget().await;
    eventually("the room is released", allows, |status| status.disruptions_allowed == 1).await;
    for _ in 0..5 {
        fixture.reconcile_all().await;
    }
    let pod = fixture.get("web-0").await;
    assert!(pod.labels().contains_key(&Stage::PreCheck.key("pod-delete")), "{:?}", pod.labels());
    let request = DeletionRequest::parse(&pod.annotations()[DELETION_REQUEST]).unwrap();
    assert_eq!(request.reserved_at, None, "{request:?}");

    let evict = deletion_request(DeletionKind::Evict, "drain");
    fixture.writer.request(&fixture.key("web-1"), None, &evict).await.unwrap();
    fixture.until("the other pod is evicted", |pods| pods.is_terminating("web-1")).await;
    assert!(fixture.get("web-0").await.labels().contains_key(&Stage::PreCheck.key("pod-delete")));
    assert_eq!(fixture.events(), ["PodEvicted"]);
}
