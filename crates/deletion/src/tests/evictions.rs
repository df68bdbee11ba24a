//! Evictions that other requests join, budgets that are deleted, and evictions without a budget.

use std::pin::pin;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use podward_kube_util::{PodKey, now};

use super::*;

const TOOL: &str = "system:serviceaccount:argo-rollouts:argo-rollouts";

pub(super) async fn a_delete_begins_a_postponed_eviction_again(fixture: Fixture) {
    fixture.pods(1).await;
    fixture.until_in_service().await;
    let (pod, evict) = (fixture.key("web-0"), deletion_request(DeletionKind::Evict, "drain"));
    let recorded = fixture.writer.request(&pod, None, &evict).await.unwrap().deletion_request().unwrap();
    // Less than the longest postponement.
    let until = now().0 + 600_000_000_000;
    let postponed = DeletionRequest { not_before: Some(until), times_postponed: 9, ..recorded };
    let operation = [Stage::Operating, Stage::OperationType].map(|stage| stage.key("pod-delete"));
    let labels = json!({&operation[0]: null, &operation[1]: null, PREPARING_TO_DELETE: null});
    let metadata = json!({"labels": labels, "annotations": {DELETION_REQUEST: postponed.to_text()}});
    fixture.merge("web-0", metadata).await;
    for _ in 0..3 {
        assert!(fixture.reconcile_all().await.is_ready("web-0"), "the eviction is postponed");
    }
    fixture.writer.request(&pod, None, &deletion_request(DeletionKind::Delete, "joe")).await.unwrap();
    fixture.until("the pod is deleted", |pods| pods.is_gone("web-0")).await;
    assert_eq!(fixture.events(), ["PodDeletion"], "the request of joe is not cancelled");
}

/// A budget can be deleted between its list and the write of its status, and before its watch begins.
pub(super) async fn a_deleted_budget_is_not_a_deleted_pod(fixture: Fixture) {
    fixture.pods(1).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 0}), 1).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(fixture.client.clone(), "no-budget");
    let budget = budgets.get("web").await.unwrap();
    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    let pods: Api<CachedPod> = Api::namespaced(fixture.client.clone(), "no-budget");
    let pod = pods.get("web-0").await.unwrap();
    let written = crate::budgets::write(&fixture.client, &pod, &budget, json!({})).await;
    assert!(written.as_ref().is_err_and(ApiError::is_conflict), "the budgets are read again: {written:?}");

    fixture.waiting().wait_for_budget(&pod.key(), &(&budget).into());
    let mut wakeups = fixture.wakeups.lock().await;
    let woken = tokio::time::timeout(Duration::from_secs(20), wakeups.next()).await;
    assert_eq!(woken.unwrap().unwrap().name, "web-0");
}

pub(super) async fn a_scale_in_takes_over_an_eviction_that_waits(fixture: Fixture) {
    let pods = fixture.replica_set(2).await;
    fixture.until_in_service().await;
    let first = fixture.key(&pods[0]);
    fixture.hold(&pods[0], CONSUMER).await;
    // A busy pod reserves no room, so that its eviction waits for the budget later.
    fixture.busy(&pods[0], true).await;
    fixture.writer.request(&first, None, &deletion_request(DeletionKind::Evict, "drain")).await.unwrap();
    fixture.budget(json!({"minAvailable": 2}), 0).await;
    fixture.busy(&pods[0], false).await;
    let delete = deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER);
    let ask =
        async || fixture.writer.request(&first, None, &delete).await.unwrap().deletion_request().unwrap();
    assert_eq!(ask().await.requested_by, "drain", "the ReplicaSet wants the pod");
    for _ in 0..5 {
        assert!(fixture.reconcile_all().await.is_ready(&pods[0]), "the eviction waits for the budget");
    }
    fixture.scale(1).await;
    assert_eq!(ask().await.requested_by, REPLICA_SET_CONTROLLER);
    fixture.until("the pod leaves service", |seen| !seen.is_ready(&pods[0])).await;

    // The eviction is not lost when the ReplicaSet wants the pod again.
    fixture.scale(2).await;
    let present = async || {
        fixture.reconcile_all().await;
        let request = DeletionRequest::parse(&fixture.get(&pods[0]).await.annotations()[DELETION_REQUEST]);
        request.map(|request| (request.kind, request.requested_by))
    };
    let evicted_by_drain = Some((DeletionKind::Evict, "drain".to_owned()));
    eventually("the eviction is back", present, |request| *request == evicted_by_drain).await;

    fixture.scale(1).await;
    assert_eq!(ask().await.requested_by, REPLICA_SET_CONTROLLER);
    fixture.release(&pods[0], CONSUMER).await;
    fixture.until("the pod is deleted", |seen| seen.is_terminating(&pods[0])).await;
    assert_eq!(fixture.events(), ["DeletionCancelled", "PodDeletion"]);
}

/// The answer to an eviction says that it is recorded, also if the ReplicaSet has requested the delete before.
pub(super) async fn an_eviction_outlives_an_earlier_scale_in(fixture: Fixture) {
    let pods = fixture.replica_set(2).await;
    fixture.until_in_service().await;
    let first = fixture.key(&pods[0]);
    fixture.hold(&pods[0], CONSUMER).await;
    fixture.scale(1).await;
    let delete = deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER);
    fixture.writer.request(&first, None, &delete).await.unwrap();
    let evict = deletion_request(DeletionKind::Evict, "jane");
    let recorded = fixture.writer.request(&first, None, &evict).await.unwrap();
    assert!(recorded.deletion_request().unwrap().by_workload, "the scale-in continues");
    let again = fixture.writer.request(&first, None, &evict).await.unwrap();
    assert_eq!(again.resource_version(), recorded.resource_version(), "nothing was written");
    fixture.until("the pod leaves service", |seen| !seen.is_ready(&pods[0])).await;

    fixture.scale(2).await;
    let present = async || {
        fixture.reconcile_all().await;
        let pod = fixture.get(&pods[0]).await;
        let text = pod.annotations().get(DELETION_REQUEST).cloned();
        text.and_then(|text| DeletionRequest::parse(&text))
            .map(|request| (request.kind, request.requested_by))
    };
    let evicted_by_jane = Some((DeletionKind::Evict, "jane".to_owned()));
    eventually("the eviction remains", present, |request| *request == evicted_by_jane).await;
    fixture.release(&pods[0], CONSUMER).await;
    fixture.until("the pod is deleted", |seen| seen.is_terminating(&pods[0])).await;
}

pub(super) async fn an_eviction_that_no_budget_concerns_is_a_delete(fixture: Fixture) {
    fixture.pods(3).await;
    fixture.until_in_service().await;
    let is_evicted = async |name: &str| {
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut versions = pin!(fixture.api().watch(&only, "0").await.unwrap());
        let (pod, evict) = (fixture.key(name), deletion_request(DeletionKind::Evict, "drain"));
        fixture.writer.request(&pod, None, &evict).await.unwrap();
        fixture.until("the pod is deleted", |pods| pods.is_gone(name)).await;
        // The kubelet overwrites the condition of the API server when the containers have ended.
        while let Some(Ok(event)) = versions.next().await {
            let pod = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => pod,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Deleted(_) | WatchEvent::Error(_) => break,
            };
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|condition| condition.type_ == "DisruptionTarget") {
                return true;
            }
        }
        false
    };
    assert!(!is_evicted("web-0").await);
    fixture.budget(json!({"minAvailable": 1}), 1).await;
    assert!(is_evicted("web-1").await);
    assert_eq!(fixture.events(), ["PodEvicted"]);
}

/// A pod that is not Ready takes no room. If it becomes Ready before it leaves service, it needs room.
pub(super) async fn a_pod_that_becomes_ready_needs_room(fixture: Fixture) {
    fixture.pods(2).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 2}), 0).await;
    let budget = async || fixture.read_budget().await;
    eventually("the budget is counted", &budget, |status| status.current_healthy == 2).await;
    fixture.web_pod(2).await;
    let phase = async || fixture.get("web-2").await.status.unwrap_or_default().phase;
    eventually("the pod runs", phase, |phase| phase.as_deref() == Some("Running")).await;
    let evict = deletion_request(DeletionKind::Evict, "drain");
    fixture.writer.request(&fixture.key("web-2"), None, &evict).await.unwrap();

    // Another check may keep the operation waiting: the pod is not reconciled before it is Ready.
    let gate_on = json!({"status": {"conditions": [{"type": SERVICE_READY_GATE, "status": "True"}]}});
    fixture.api().patch_status("web-2", &PatchParams::default(), &Patch::Strategic(gate_on)).await.unwrap();
    eventually("one pod may go", &budget, |status| status.disruptions_allowed == 1).await;
    fixture.writer.request(&fixture.key("web-1"), None, &evict).await.unwrap();
    fixture.until("the other pod is evicted", |pods| pods.is_terminating("web-1")).await;
    for _ in 0..5 {
        let seen = fixture.reconcile_all().await;
        assert!(seen.is_ready("web-2") && seen.is_marked("web-2"), "the pod left service without room");
    }
}

/// Tools that count only accepted evictions against a limit of their own would otherwise evict all pods at once.
pub(super) async fn evictions_by_service_accounts_go_one_at_a_time(fixture: Fixture) {
    let pods = fixture.replica_set(3).await;
    fixture.until_in_service().await;
    let (tool, jane) =
        (deletion_request(DeletionKind::Evict, TOOL), deletion_request(DeletionKind::Evict, "jane"));
    let ask = async |name: &str, request| fixture.writer.request(&fixture.key(name), None, request).await;
    fixture.hold(&pods[0], CONSUMER).await;
    let recorded = ask(&pods[0], &tool).await.unwrap();
    // Replicas of the controller share no memory.
    let other = DeletionRequestWriter::new(fixture.client.clone(), DeletionMetrics::new());
    for writer in [&fixture.writer, &other] {
        for name in &pods[1..] {
            let why = no_room(writer.request(&fixture.key(name), None, &tool).await);
            let parts =
                [name.as_str(), &pods[0], "no PodDisruptionBudget selects it", "one at a time", "try again"];
            assert!(parts.iter().all(|part| why.contains(part)), "{why}");
            assert!(fixture.get(name).await.annotations().is_empty(), "nothing is recorded");
        }
    }
    let again = ask(&pods[0], &tool).await.unwrap();
    assert_eq!(again.resource_version(), recorded.resource_version(), "the eviction is recorded already");

    // Users, and deletes, are not limited.
    fixture.hold(&pods[1], CONSUMER).await;
    ask(&pods[1], &jane).await.unwrap();
    fixture.release(&pods[1], CONSUMER).await;
    fixture.until("the second pod is gone", |seen| seen.is_gone(&pods[1])).await;
    no_room(ask(&pods[2], &tool).await);
    fixture.until("the first pod is out of service", |seen| !seen.is_ready(&pods[0])).await;
    no_room(ask(&pods[2], &tool).await);
    fixture.release(&pods[0], CONSUMER).await;
    fixture.until("the first pod is gone", |seen| seen.is_gone(&pods[0])).await;
    ask(&pods[2], &tool).await.unwrap();
}

/// Their evictions take no pod out of service, and may be what the others wait for.
pub(super) async fn evictions_of_pods_that_are_not_ready_are_recorded_at_once(fixture: Fixture) {
    let tool = deletion_request(DeletionKind::Evict, TOOL);
    for name in &fixture.replica_set(2).await {
        fixture.writer.request(&fixture.key(name), None, &tool).await.unwrap();
    }
}

/// They must not delay the drain of a node.
pub(super) async fn evictions_from_a_cordoned_node_are_recorded_at_once(fixture: Fixture) {
    let pods = fixture.replica_set(3).await;
    fixture.until_in_service().await;
    let tool = deletion_request(DeletionKind::Evict, TOOL);
    let keys: Vec<PodKey> = pods.iter().map(|name| fixture.key(name)).collect();
    let ask_all = async || join_all(keys.iter().map(|key| fixture.writer.request(key, None, &tool))).await;
    fixture.busy(&pods[0], true).await;
    let answers = ask_all().await;
    let recorded = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(recorded, 1, "one of the evictions at the same time: {answers:?}");
    answers.into_iter().filter(Result::is_err).for_each(|refused| drop(no_room(refused)));

    // Pods of other tests are scheduled when the nodes are no longer cordoned.
    let nodes: Api<Node> = Api::all(fixture.client.clone());
    let names: Vec<String> =
        nodes.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    for name in &names {
        nodes.cordon(name).await.unwrap();
    }
    let answers = ask_all().await;
    for name in &names {
        nodes.uncordon(name).await.unwrap();
    }
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

pub(super) async fn a_budget_limits_evictions_by_service_accounts_alone(fixture: Fixture) {
    let pods = fixture.replica_set(3).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 1}), 2).await;
    let tool = deletion_request(DeletionKind::Evict, TOOL);
    for name in &pods[..2] {
        fixture.hold(name, CONSUMER).await;
        fixture.writer.request(&fixture.key(name), None, &tool).await.unwrap();
    }
    let why = no_room(fixture.writer.request(&fixture.key(&pods[2]), None, &tool).await);
    assert!(why.starts_with(BUDGET_REFUSAL), "{why}");
    // The room of a busy pod is reserved later.
    fixture.busy(&pods[2], true).await;
    fixture.writer.request(&fixture.key(&pods[2]), None, &tool).await.unwrap();
}

fn no_room(answer: Result<Arc<CachedPod>, DeletionRefusal>) -> String {
    match answer {
        Err(DeletionRefusal::NoRoom(why)) => why,
        other => panic!("{other:?}"),
    }
}
