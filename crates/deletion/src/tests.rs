//! Deletions against a real API server with the real disruption and ReplicaSet controllers. A simulated kubelet makes
//! pods Ready and terminates them.

// Helpers of tests are not in test functions.
#![allow(clippy::unwrap_used, clippy::panic)]

mod busy;
mod clone_sets;
mod cluster;
mod counts;
mod evictions;
mod jobs;
mod known;
mod pages;
mod taints;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_core::UnixNanos;
use podward_core::deletion::hold::BUDGET_REFUSAL;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{
    BUSY_UNTIL, DELETION_REQUEST, POD_DELETION_COST, PREPARING_TO_DELETE, SERVICE_READY_GATE, Stage,
    TO_DELETE, TO_DELETE_BY,
};
use podward_kube_util::{ApiError, CachedPod};
use podward_testbed::{Shape, TestCluster};
use serde_json::json;

use self::cluster::{Fixture, deletion_request, eventually};
use super::{DeletionMetrics, DeletionRefusal, DeletionRequestWriter};

const REPLICA_SET_CONTROLLER: &str = "system:serviceaccount:kube-system:replicaset-controller";
const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";
const CONSUMER: &str = "prot.podopslifecycle.kusionstack.io/test";

#[tokio::test(flavor = "multi_thread")]
async fn deletions_with_a_real_api_server() {
    let cluster =
        TestCluster::builder(Shape::Simulated).name("deletion").simulated_nodes(2).start().await.unwrap();
    let client = cluster.client();
    cluster::deny_deletes_of_workload_controllers(&client).await;
    // Boxed, because all of them together are too large for the stack of a test.
    tokio::join!(
        requests_are_idempotent(Fixture::new(&client, "requests").await).boxed_local(),
        the_label_begins_a_deletion_and_its_removal_cancels_it(Fixture::new(&client, "labels").await)
            .boxed_local(),
        concurrent_evictions_do_not_exceed_the_budget(Fixture::new(&client, "budgets").await).boxed_local(),
        cancellation_releases_reserved_room(Fixture::new(&client, "cancels").await).boxed_local(),
        a_budget_with_min_available_zero_allows_every_eviction(Fixture::new(&client, "wants-nobody").await)
            .boxed_local(),
        a_scale_in_deletes_only_pods_in_excess(Fixture::new(&client, "scale-in").await).boxed_local(),
        scaling_up_again_cancels_the_newest_request(Fixture::new(&client, "scale-up").await).boxed_local(),
        a_rollout_keeps_enough_pods_in_service(Fixture::new(&client, "rollout").await).boxed_local(),
        evictions::a_delete_begins_a_postponed_eviction_again(Fixture::new(&client, "joins").await)
            .boxed_local(),
        evictions::a_scale_in_takes_over_an_eviction_that_waits(Fixture::new(&client, "takes-over").await)
            .boxed_local(),
        evictions::an_eviction_outlives_an_earlier_scale_in(Fixture::new(&client, "outlives").await)
            .boxed_local(),
        evictions::a_deleted_budget_is_not_a_deleted_pod(Fixture::new(&client, "no-budget").await)
            .boxed_local(),
        evictions::a_pod_that_becomes_ready_needs_room(Fixture::new(&client, "becomes-ready").await)
            .boxed_local(),
        evictions::an_eviction_that_no_budget_concerns_is_a_delete(
            Fixture::new(&client, "unconcerned").await
        )
        .boxed_local(),
        async {
            evictions::evictions_by_service_accounts_go_one_at_a_time(Fixture::new(&client, "tool").await)
                .await;
            // Not at the same time: the nodes are cordoned.
            let drained = Fixture::new(&client, "tool-drains").await;
            evictions::evictions_from_a_cordoned_node_are_recorded_at_once(drained).await;
        }
        .boxed_local(),
        evictions::evictions_of_pods_that_are_not_ready_are_recorded_at_once(
            Fixture::new(&client, "tool-unready").await
        )
        .boxed_local(),
        evictions::a_budget_limits_evictions_by_service_accounts_alone(
            Fixture::new(&client, "tool-budget").await
        )
        .boxed_local(),
        clone_sets::an_eviction_waits_for_the_hook(Fixture::new(&client, "set-waits").await).boxed_local(),
        clone_sets::a_repeated_eviction_renews_the_reservation(Fixture::new(&client, "set-repeats").await)
            .boxed_local(),
        clone_sets::the_garbage_collector_does_not_wait_for_the_hook(Fixture::new(&client, "set-gone").await)
            .boxed_local(),
        known::a_known_pod_may_be_out_of_date(Fixture::new(&client, "known").await).boxed_local(),
        taints::a_taint_eviction_is_no_scale_in(Fixture::new(&client, "taint").await).boxed_local(),
        jobs::a_job_ends_by_its_success_policy(Fixture::new(&client, "job").await).boxed_local(),
        jobs::a_pod_that_a_user_has_deleted_shows_that_its_job_ends(Fixture::new(&client, "job-user").await)
            .boxed_local(),
        busy::busy_pods_reserve_no_room(Fixture::new(&client, "busy").await).boxed_local(),
        busy::a_denied_eviction_waits_without_room(Fixture::new(&client, "denied").await).boxed_local(),
        a_deletion_is_cancelled_when_its_requester_may_not_delete(Fixture::new(&client, "rights").await)
            .boxed_local(),
        busy::a_controller_chooses_again_when_its_pod_became_busy(Fixture::new(&client, "busy-choice").await)
            .boxed_local(),
        pages::a_workload_has_as_many_pods_as_a_page_holds(Fixture::new(&client, "page").await).boxed_local(),
    );
    cluster.down().await.unwrap();
}

async fn requests_are_idempotent(fixture: Fixture) {
    fixture.pods(1).await;
    let phase = async || fixture.get("web-0").await.status.unwrap_or_default().phase;
    eventually("the pod runs", phase, |phase| phase.as_deref() == Some("Running")).await;
    let pod = fixture.key("web-0");
    let evict = deletion_request(DeletionKind::Evict, "jane");
    let recorded = fixture.writer.request(&pod, None, &evict).await.unwrap();
    assert!(recorded.view().labels.contains_key(&Stage::Operating.key("pod-delete")));
    assert_eq!(recorded.deletion_request().unwrap().requested_by, "jane");

    let again = fixture.writer.request(&pod, Some(recorded.uid()), &evict).await.unwrap();
    assert_eq!(again.resource_version(), recorded.resource_version(), "nothing was written");
    let raised =
        fixture.writer.request(&pod, None, &deletion_request(DeletionKind::Delete, "joe")).await.unwrap();
    assert_eq!(raised.deletion_request().unwrap().kind, DeletionKind::Delete);
    let lower = fixture.writer.request(&pod, None, &evict).await.unwrap();
    assert_eq!(lower.resource_version(), raised.resource_version());

    let wrong = fixture.writer.request(&pod, Some("other"), &evict).await;
    assert!(matches!(wrong, Err(DeletionRefusal::WrongUid { .. })), "{wrong:?}");
    let missing = fixture.writer.request(&fixture.key("nobody"), None, &evict).await;
    assert!(matches!(missing, Err(DeletionRefusal::NotFound(_))), "{missing:?}");
    fixture.label("web-0", json!({"kusionstack.io/control": null})).await;
    let out = fixture.writer.request(&pod, None, &evict).await;
    assert!(matches!(out, Err(DeletionRefusal::NotOptedIn(_))), "{out:?}");
}

async fn the_label_begins_a_deletion_and_its_removal_cancels_it(fixture: Fixture) {
    fixture.pods(2).await;
    fixture.until_in_service().await;
    fixture.hold("web-0", CONSUMER).await;
    fixture.request_by_label("web-0", "jane", "system:masters").await;
    fixture.until("the pod leaves service", |pods| !pods.is_ready("web-0")).await;
    assert!(fixture.get("web-0").await.annotations().contains_key(DELETION_REQUEST));
    fixture.label("web-0", json!({TO_DELETE: null})).await;
    fixture.until("the pod is back in service", |pods| pods.is_ready("web-0")).await;
    let pod = fixture.get("web-0").await;
    assert!(pod.annotations().is_empty(), "{:?}", pod.annotations());
    assert!(
        !pod.labels().keys().any(|key| key.contains("pod-delete") || key.contains("preparing")),
        "{:?}",
        pod.labels()
    );

    fixture.request_by_label("web-1", "jane", "system:masters").await;
    fixture.until("the pod is gone", |pods| pods.is_gone("web-1")).await;
    assert_eq!(fixture.events(), ["DeletionCancelled", "PodDeletion"]);
}

/// A right can be revoked after the request was recorded, and a user who may only patch pods can set the label.
async fn a_deletion_is_cancelled_when_its_requester_may_not_delete(fixture: Fixture) {
    fixture.pods(2).await;
    fixture.until_in_service().await;
    let request = DeletionRequest::new(DeletionKind::Delete, "mallory", UnixNanos(0));
    fixture.writer.request(&fixture.key("web-0"), None, &request).await.unwrap();
    let cancelled = async |name: &str| {
        fixture.until("the request is cancelled", |pods| !pods.is_marked(name)).await;
        let annotations = fixture.get(name).await.annotations().clone();
        assert!(annotations.is_empty(), "{annotations:?}");
    };
    cancelled("web-0").await;

    fixture.request_by_label("web-1", "mallory", "system:authenticated").await;
    cancelled("web-1").await;

    // Whoever may write the pod can remove the annotation, or write one that cannot be read, where no policy denies it.
    for author in [json!(null), json!(r#"{"user":"corp\mallory","groups":[]}"#)] {
        fixture.annotate("web-1", json!({TO_DELETE_BY: author})).await;
        fixture.label("web-1", json!({TO_DELETE: "1"})).await;
        cancelled("web-1").await;
    }
    fixture.until("both pods are in service", |pods| pods.ready() == 2).await;
    assert_eq!(fixture.events(), ["DeletionCancelled"]);
}

async fn concurrent_evictions_do_not_exceed_the_budget(fixture: Fixture) {
    fixture.pods(3).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 2}), 1).await;
    for number in 0..3 {
        fixture.stops_after(&format!("web-{number}"), 3).await;
    }
    // Two replicas of the controller receive requests for all three pods, several times, at the same time.
    let other = DeletionRequestWriter::new(fixture.client.clone(), DeletionMetrics::new());
    let asked = (0..9).map(|number| {
        let writer = if number % 2 == 0 { &fixture.writer } else { &other };
        let pod = fixture.key(&format!("web-{}", number % 3));
        let request = podward_core::deletion::request::DeletionRequest {
            grace_period_seconds: Some(7),
            ..deletion_request(DeletionKind::Evict, "drain")
        };
        async move { (pod.name.clone(), writer.request(&pod, None, &request).await) }
    });
    let mut taken = BTreeSet::new();
    for (name, answer) in join_all(asked).await {
        match answer {
            Ok(_) => drop(taken.insert(name)),
            Err(DeletionRefusal::NoRoom(text)) => assert!(text.starts_with(BUDGET_REFUSAL), "{text}"),
            Err(other) => panic!("{other}"),
        }
    }
    let taken: Vec<String> = taken.into_iter().collect();
    assert_eq!(taken.len(), 1, "{taken:?}");
    let budget = fixture.read_budget().await;
    assert_eq!(budget.disruptions_allowed, 0);
    assert_eq!(budget.disrupted_pods.unwrap().into_keys().collect::<Vec<_>>(), taken);

    // A direct eviction finds no room either.
    let left = ["web-0", "web-1", "web-2"].into_iter().find(|name| *name != taken[0]).unwrap();
    let stock = fixture.api().evict(left, &kube::api::EvictParams::default()).await;
    assert!(matches!(&stock, Err(kube::Error::Api(status)) if status.code == 429), "{stock:?}");

    fixture
        .until("the pod is evicted", |pods| {
            assert!(pods.ready() + 1 >= 3, "a pod without permission left service");
            pods.is_terminating(&taken[0])
        })
        .await;
    let evicted = fixture.get(&taken[0]).await;
    assert_eq!(evicted.metadata.deletion_grace_period_seconds, Some(7), "the options reach the API server");
    assert_eq!(fixture.events(), ["PodEvicted"]);
}

async fn cancellation_releases_reserved_room(fixture: Fixture) {
    fixture.pods(2).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 1}), 1).await;
    fixture.hold("web-0", CONSUMER).await;
    fixture
        .writer
        .request(&fixture.key("web-0"), None, &deletion_request(DeletionKind::Evict, "drain"))
        .await
        .unwrap();
    let refused = fixture
        .writer
        .request(&fixture.key("web-1"), None, &deletion_request(DeletionKind::Evict, "drain"))
        .await;
    assert!(matches!(refused, Err(DeletionRefusal::NoRoom(_))), "{refused:?}");
    fixture.until("the pod leaves service", |pods| !pods.is_ready("web-0")).await;
    fixture.label("web-0", json!({TO_DELETE: null})).await;
    fixture.until("the pod is back in service", |pods| pods.is_ready("web-0")).await;
    let allows = async || fixture.read_budget().await;
    let status = eventually("the room is released", allows, |status| status.disruptions_allowed == 1).await;
    assert!(status.disrupted_pods.unwrap_or_default().is_empty());
    fixture
        .writer
        .request(&fixture.key("web-1"), None, &deletion_request(DeletionKind::Evict, "drain"))
        .await
        .unwrap();
}

/// The API server refuses to evict a pod that is not Ready under a budget that wants no healthy pods when it is the
/// last one.
async fn a_budget_with_min_available_zero_allows_every_eviction(fixture: Fixture) {
    fixture.pods(1).await;
    fixture.until_in_service().await;
    fixture.budget(json!({"minAvailable": 0}), 1).await;
    fixture
        .writer
        .request(&fixture.key("web-0"), None, &deletion_request(DeletionKind::Evict, "drain"))
        .await
        .unwrap();
    fixture.until("the pod is gone", |pods| pods.is_gone("web-0")).await;
    assert_eq!(fixture.events(), ["PodEvicted"]);
}

async fn a_scale_in_deletes_only_pods_in_excess(fixture: Fixture) {
    let pods = fixture.replica_set(5).await;
    fixture.until_in_service().await;
    fixture.scale(3).await;
    // A refused ReplicaSet controller tries other pods, repeatedly. Here it requests all pods at the same time.
    for _ in 0..3 {
        let asked = pods.iter().map(|name| {
            let key = fixture.key(name);
            let writer = &fixture.writer;
            async move {
                writer
                    .request(&key, None, &deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER))
                    .await
            }
        });
        for answer in join_all(asked).await {
            match answer {
                Ok(pod) => assert!(
                    pod.view().terminating
                        || pod.deletion_request().is_some_and(|request| request.by_workload)
                ),
                Err(DeletionRefusal::NoRoom(text)) => assert!(text.contains("wants 3"), "{text}"),
                Err(DeletionRefusal::NotFound(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        fixture.reconcile_all().await;
    }
    fixture.until("two pods are gone", |pods| pods.count() == 3 && pods.ready() == 3).await;
    for _ in 0..20 {
        fixture.reconcile_all().await;
    }
    let left = fixture.api().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count(), 3);
    for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        assert!(
            !pod.annotations().contains_key(DELETION_REQUEST)
                && !pod.annotations().contains_key(POD_DELETION_COST)
        );
    }
    let (key, again) =
        (fixture.key(&left[0].name_any()), deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER));
    let refused = fixture.writer.request(&key, None, &again);
    assert!(matches!(refused.await, Err(DeletionRefusal::NoRoom(_) | DeletionRefusal::NotFound(_))));
}

async fn scaling_up_again_cancels_the_newest_request(fixture: Fixture) {
    let pods = fixture.replica_set(4).await;
    fixture.until_in_service().await;
    for name in &pods {
        fixture.hold(name, CONSUMER).await;
    }
    fixture.scale(2).await;
    for name in &pods[..2] {
        let recorded = fixture
            .writer
            .request(
                &fixture.key(name),
                None,
                &deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER),
            )
            .await;
        assert_eq!(recorded.unwrap().carried(None).deletion_cost, Some("-2147483648"));
    }
    fixture.until("both leave service", |seen| pods[..2].iter().all(|name| !seen.is_ready(name))).await;
    // Discards all reports of the watches until now.
    while fixture.wakeups.lock().await.next().now_or_never().flatten().is_some() {}
    fixture.scale(3).await;
    let called = fixture.wakeups.lock().await.next().await.unwrap();
    assert!(pods[..2].contains(&called.name), "{called}");
    fixture.until("the newest is back in service", |seen| seen.is_ready(&pods[1])).await;
    assert!(!fixture.get(&pods[1]).await.annotations().contains_key(POD_DELETION_COST));
    fixture.release(&pods[0], CONSUMER).await;
    fixture.until("the other pod is deleted", |seen| seen.is_terminating(&pods[0])).await;
    assert_eq!(fixture.events(), ["DeletionCancelled", "PodDeletion"]);
}

/// The Deployment controller counts pods whose delete is held as pods that stay, and may scale old ReplicaSets in too
/// far. This is a race, so the test scales the old ReplicaSet in itself, while the new pods find no node.
async fn a_rollout_keeps_enough_pods_in_service(fixture: Fixture) {
    fixture.deployment(3).await;
    fixture.until_in_service().await;
    let old = fixture.sets().await.remove(0);
    fixture.patch_deployment(json!({"template": {"spec": {"nodeSelector": {"rollout": "here"}}}})).await;
    fixture.until("there is a pod of the surge", |pods| pods.count() == 4).await;
    let old_pods = fixture.reconcile_all().await.names(&old);
    assert_eq!(old_pods.len(), 3);
    fixture.scale_set(&old, 0).await;
    for name in &old_pods {
        let (key, request) =
            (fixture.key(name), deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER));
        fixture.writer.request(&key, None, &request).await.unwrap();
    }
    for _ in 0..20 {
        assert_eq!(fixture.reconcile_all().await.ready(), 3, "a pod left service that must stay");
    }
    fixture.label_nodes(json!({"rollout": "here"})).await;
    fixture
        .until("the new pods replace the old pods", |pods| {
            assert!(pods.ready() >= 3, "a pod left service that must stay");
            pods.names(&old).is_empty()
        })
        .await;
}
