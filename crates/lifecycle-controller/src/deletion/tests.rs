//! Deletions against a real API server, with the real disruption and ReplicaSet controllers; a simulated kubelet makes pods Ready
//! and ends them.

// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::BTreeSet;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_core::hold::BUDGET_REFUSAL;
use podward_core::keys::{
    BUSY_UNTIL, DELETION_WISH, POD_DELETION_COST, SERVICE_READY_GATE, Stage, TO_DELETE,
};
use podward_core::wish::DeletionKind;
use podward_testbed::{Bed, Shape};
use serde_json::json;

use self::cluster::{Space, eventually, wish};
use super::{DeletionMetrics, Refusal, Requests};

const REPLICA_SETS: &str = "system:serviceaccount:kube-system:replicaset-controller";
const HOLDER: &str = "prot.podopslifecycle.kusionstack.io/test";

#[tokio::test(flavor = "multi_thread")]
async fn deletions_with_a_real_api_server() {
    let bed = Bed::builder(Shape::Simulated).name("deletion").simulated_nodes(2).start().await.unwrap();
    let client = bed.client();
    cluster::replica_sets_may_not_delete(&client).await;
    tokio::join!(
        requests_are_idempotent(Space::new(&client, "requests").await),
        a_label_begins_and_its_removal_cancels(Space::new(&client, "labels").await),
        budgets_are_not_overdrawn(Space::new(&client, "budgets").await),
        room_comes_back_with_a_cancel(Space::new(&client, "cancels").await),
        a_budget_that_wants_nobody_holds_nobody(Space::new(&client, "wants-nobody").await),
        a_scale_in_takes_what_is_too_much(Space::new(&client, "scale-in").await),
        scaling_up_again_keeps_the_newest(Space::new(&client, "scale-up").await),
        a_rollout_keeps_what_it_promises(Space::new(&client, "rollout").await),
        busy_pods_take_no_room(Space::new(&client, "busy").await),
        a_choice_that_has_become_busy_is_made_again(Space::new(&client, "busy-choice").await),
    );
    bed.down().await.unwrap();
}

async fn requests_are_idempotent(space: Space) {
    space.pods(1).await;
    let phase = async || space.get("web-0").await.status.unwrap_or_default().phase;
    eventually("the kubelet has had its say", phase, |phase| phase.as_deref() == Some("Running")).await;
    let pod = space.key("web-0");
    let evict = wish(DeletionKind::Evict, "jane");
    let recorded = space.requests.request(&pod, None, &evict).await.unwrap();
    assert!(recorded.view().labels.contains_key(&Stage::Operating.key("pod-delete")));
    assert_eq!(recorded.wish().unwrap().requested_by, "jane");

    let again = space.requests.request(&pod, Some(recorded.uid()), &evict).await.unwrap();
    assert_eq!(again.resource_version(), recorded.resource_version(), "nothing was written");
    let raised = space.requests.request(&pod, None, &wish(DeletionKind::Delete, "joe")).await.unwrap();
    assert_eq!(raised.wish().unwrap().kind, DeletionKind::Delete);
    let lower = space.requests.request(&pod, None, &evict).await.unwrap();
    assert_eq!(lower.resource_version(), raised.resource_version());

    let wrong = space.requests.request(&pod, Some("other"), &evict).await;
    assert!(matches!(wrong, Err(Refusal::WrongUid { .. })), "{wrong:?}");
    let missing = space.requests.request(&space.key("nobody"), None, &evict).await;
    assert!(matches!(missing, Err(Refusal::NotFound(_))), "{missing:?}");
    space.label("web-0", json!({"kusionstack.io/control": null})).await;
    let out = space.requests.request(&pod, None, &evict).await;
    assert!(matches!(out, Err(Refusal::NotOptedIn(_))), "{out:?}");
}

async fn a_label_begins_and_its_removal_cancels(space: Space) {
    space.pods(2).await;
    space.settle().await;
    space.hold("web-0", HOLDER).await;
    space.label("web-0", json!({TO_DELETE: "1"})).await;
    space.until("the pod leaves service", |pods| !pods.is_ready("web-0")).await;
    assert!(space.get("web-0").await.annotations().contains_key(DELETION_WISH));
    space.label("web-0", json!({TO_DELETE: null})).await;
    space.until("the pod is back", |pods| pods.is_ready("web-0")).await;
    let pod = space.get("web-0").await;
    assert!(pod.annotations().is_empty(), "{:?}", pod.annotations());
    assert!(
        !pod.labels().keys().any(|key| key.contains("pod-delete") || key.contains("preparing")),
        "{:?}",
        pod.labels()
    );

    space.label("web-1", json!({TO_DELETE: "1"})).await;
    space.until("the pod is gone", |pods| pods.is_gone("web-1")).await;
    assert_eq!(space.events(), ["DeletionCancelled", "PodDeletion"]);
}

async fn budgets_are_not_overdrawn(space: Space) {
    space.pods(3).await;
    space.settle().await;
    space.budget(json!({"minAvailable": 2}), 1).await;
    for number in 0..3 {
        space.stops_after(&format!("web-{number}"), 3).await;
    }
    // Two replicas of the controller are asked for all three, several times, at once.
    let other = Requests::new(space.client.clone(), DeletionMetrics::new());
    let asked = (0..9).map(|number| {
        let requests = if number % 2 == 0 { &space.requests } else { &other };
        let pod = space.key(&format!("web-{}", number % 3));
        let wish =
            podward_core::wish::Wish { grace_period_seconds: Some(7), ..wish(DeletionKind::Evict, "drain") };
        async move { (pod.name.clone(), requests.request(&pod, None, &wish).await) }
    });
    let mut taken = BTreeSet::new();
    for (name, answer) in join_all(asked).await {
        match answer {
            Ok(_) => drop(taken.insert(name)),
            Err(Refusal::NoRoom(text)) => assert!(text.starts_with(BUDGET_REFUSAL), "{text}"),
            Err(other) => panic!("{other}"),
        }
    }
    let taken: Vec<String> = taken.into_iter().collect();
    assert_eq!(taken.len(), 1, "{taken:?}");
    let budget = space.read_budget().await;
    assert_eq!(budget.disruptions_allowed, 0);
    assert_eq!(budget.disrupted_pods.unwrap().into_keys().collect::<Vec<_>>(), taken);

    // Others by the plain way find it taken too.
    let left = ["web-0", "web-1", "web-2"].into_iter().find(|name| *name != taken[0]).unwrap();
    let stock = space.api().evict(left, &kube::api::EvictParams::default()).await;
    assert!(matches!(&stock, Err(kube::Error::Api(status)) if status.code == 429), "{stock:?}");

    space
        .until("the pod is evicted", |pods| {
            assert!(pods.ready() + 1 >= 3, "one that is not to go left service");
            pods.is_terminating(&taken[0])
        })
        .await;
    let evicted = space.get(&taken[0]).await;
    assert_eq!(evicted.metadata.deletion_grace_period_seconds, Some(7), "the options reach the API server");
    assert_eq!(space.events(), ["PodEvicted"]);
}

async fn room_comes_back_with_a_cancel(space: Space) {
    space.pods(2).await;
    space.settle().await;
    space.budget(json!({"minAvailable": 1}), 1).await;
    space.hold("web-0", HOLDER).await;
    space.requests.request(&space.key("web-0"), None, &wish(DeletionKind::Evict, "drain")).await.unwrap();
    let refused =
        space.requests.request(&space.key("web-1"), None, &wish(DeletionKind::Evict, "drain")).await;
    assert!(matches!(refused, Err(Refusal::NoRoom(_))), "{refused:?}");
    space.until("the pod leaves service", |pods| !pods.is_ready("web-0")).await;
    space.label("web-0", json!({TO_DELETE: null})).await;
    space.until("the pod is back", |pods| pods.is_ready("web-0")).await;
    let allows = async || space.read_budget().await;
    let status = eventually("room is back", allows, |status| status.disruptions_allowed == 1).await;
    assert!(status.disrupted_pods.unwrap_or_default().is_empty());
    space.requests.request(&space.key("web-1"), None, &wish(DeletionKind::Evict, "drain")).await.unwrap();
}

/// The API server refuses to evict a pod that is not Ready under a budget that wants no healthy pods when it is the last one.
async fn a_budget_that_wants_nobody_holds_nobody(space: Space) {
    space.pods(1).await;
    space.settle().await;
    space.budget(json!({"minAvailable": 0}), 1).await;
    space.requests.request(&space.key("web-0"), None, &wish(DeletionKind::Evict, "drain")).await.unwrap();
    space.until("the pod is gone", |pods| pods.is_gone("web-0")).await;
    assert_eq!(space.events(), ["PodEvicted"]);
}

async fn a_scale_in_takes_what_is_too_much(space: Space) {
    let pods = space.replica_set(5).await;
    space.settle().await;
    space.scale(3).await;
    // What the ReplicaSet controller does when it is refused: it asks for others, and again. Here all at the same moment.
    for _ in 0..3 {
        let asked = pods.iter().map(|name| {
            let key = space.key(name);
            let requests = &space.requests;
            async move { requests.request(&key, None, &wish(DeletionKind::Delete, REPLICA_SETS)).await }
        });
        for answer in join_all(asked).await {
            match answer {
                Ok(pod) => assert!(pod.view().terminating || pod.wish().is_some_and(|wish| wish.by_workload)),
                Err(Refusal::NoRoom(text)) => assert!(text.contains("wants 3"), "{text}"),
                Err(Refusal::NotFound(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        space.look_at_all().await;
    }
    space.until("two are gone", |pods| pods.count() == 3 && pods.ready() == 3).await;
    for _ in 0..20 {
        space.look_at_all().await;
    }
    let left = space.api().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count(), 3);
    for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        assert!(
            !pod.annotations().contains_key(DELETION_WISH)
                && !pod.annotations().contains_key(POD_DELETION_COST)
        );
    }
    let (key, again) = (space.key(&left[0].name_any()), wish(DeletionKind::Delete, REPLICA_SETS));
    let refused = space.requests.request(&key, None, &again);
    assert!(matches!(refused.await, Err(Refusal::NoRoom(_) | Refusal::NotFound(_))));
}

async fn scaling_up_again_keeps_the_newest(space: Space) {
    let pods = space.replica_set(4).await;
    space.settle().await;
    for name in &pods {
        space.hold(name, HOLDER).await;
    }
    space.scale(2).await;
    for name in &pods[..2] {
        let recorded =
            space.requests.request(&space.key(name), None, &wish(DeletionKind::Delete, REPLICA_SETS)).await;
        assert_eq!(recorded.unwrap().carried(None).deletion_cost, Some("-2147483648"));
    }
    space.until("both leave service", |seen| pods[..2].iter().all(|name| !seen.is_ready(name))).await;
    // Whatever the watches said until now is taken.
    while space.awake.lock().await.next().now_or_never().flatten().is_some() {}
    space.scale(3).await;
    let called = space.awake.lock().await.next().await.unwrap();
    assert!(pods[..2].contains(&called.name), "{called}");
    space.until("the newest is back", |seen| seen.is_ready(&pods[1])).await;
    assert!(!space.get(&pods[1]).await.annotations().contains_key(POD_DELETION_COST));
    space.release(&pods[0], HOLDER).await;
    space.until("the other goes", |seen| seen.is_terminating(&pods[0])).await;
    assert_eq!(space.events(), ["DeletionCancelled", "PodDeletion"]);
}

/// The Deployment controller takes pods whose delete is held for pods that stay, and may scale old ReplicaSets in too far. That needs
/// luck, so the old one is scaled in by hand here, while the new pods find no node.
async fn a_rollout_keeps_what_it_promises(space: Space) {
    space.deployment(3).await;
    space.settle().await;
    let old = space.sets().await.remove(0);
    space.patch_deployment(json!({"template": {"spec": {"nodeSelector": {"rollout": "here"}}}})).await;
    space.until("there is a pod of the surge", |pods| pods.count() == 4).await;
    let old_pods = space.look_at_all().await.names(&old);
    assert_eq!(old_pods.len(), 3);
    space.scale_set(&old, 0).await;
    for name in &old_pods {
        let (key, wish) = (space.key(name), wish(DeletionKind::Delete, REPLICA_SETS));
        space.requests.request(&key, None, &wish).await.unwrap();
    }
    for _ in 0..20 {
        assert_eq!(space.look_at_all().await.ready(), 3, "a pod left service that was to stay");
    }
    space.label_nodes(json!({"rollout": "here"})).await;
    space
        .until("the new ones take over", |pods| {
            assert!(pods.ready() >= 3, "a pod left service that was to stay");
            pods.names(&old).is_empty()
        })
        .await;
}

/// One may go of three. A wish for a busy one holds nothing that another needs, also when room was taken before it was busy.
async fn busy_pods_take_no_room(space: Space) {
    space.pods(3).await;
    space.settle().await;
    space.budget(json!({"minAvailable": 2}), 1).await;
    let evict = wish(DeletionKind::Evict, "drain");
    space.busy("web-0", true).await;
    let recorded = space.requests.request(&space.key("web-0"), None, &evict).await.unwrap();
    assert_eq!(recorded.wish().unwrap().reserved_at, None);
    for _ in 0..5 {
        assert_eq!(space.look_at_all().await.ready(), 3, "a busy pod left service");
        assert_eq!(space.read_budget().await.disruptions_allowed, 1);
    }
    let held = space.get("web-0").await;
    assert!(held.labels().contains_key(&Stage::PreCheck.key("pod-delete")), "{:?}", held.labels());

    let taken = space.requests.request(&space.key("web-1"), None, &evict).await.unwrap();
    assert!(taken.wish().unwrap().reserved_at.is_some());
    assert_eq!(space.read_budget().await.disruptions_allowed, 0);
    space.busy("web-1", true).await;
    space.look_at_all().await;
    let allows = async || space.read_budget().await;
    let status = eventually("room is given back", allows, |status| status.disruptions_allowed == 1).await;
    assert!(status.disrupted_pods.unwrap_or_default().is_empty());

    space.busy("web-1", false).await;
    space.until("the one that is done goes", |pods| pods.is_terminating("web-1")).await;
    space.busy("web-0", false).await;
    for _ in 0..5 {
        assert!(space.look_at_all().await.is_ready("web-0"), "it left service without room");
    }
    assert_eq!(space.events(), ["PodEvicted"]);
}

/// A ReplicaSet that has not seen yet that its choice is busy is to choose again, while others are idle.
async fn a_choice_that_has_become_busy_is_made_again(space: Space) {
    let pods = space.replica_set(3).await;
    space.until("all are available", |seen| seen.available() == 3).await;
    for name in &pods[..2] {
        space.busy(name, true).await;
    }
    space.scale(2).await;
    let delete = wish(DeletionKind::Delete, REPLICA_SETS);
    let refused = space.requests.request(&space.key(&pods[0]), None, &delete).await;
    assert!(matches!(&refused, Err(Refusal::NoRoom(text)) if text.contains("busy until")), "{refused:?}");
    assert!(!space.get(&pods[0]).await.annotations().contains_key(DELETION_WISH));
    // Others ask for what they mean.
    let person =
        space.requests.request(&space.key(&pods[1]), None, &wish(DeletionKind::Delete, "jane")).await;
    assert!(person.is_ok(), "{person:?}");
    space.label(&pods[1], json!({TO_DELETE: null})).await;
    let marks = async || space.look_at_all().await.wishes();
    eventually("that wish is taken back", marks, |wishes| *wishes == 0).await;

    space.requests.request(&space.key(&pods[2]), None, &delete).await.unwrap();
    space.until("the idle one goes", |seen| seen.is_terminating(&pods[2])).await;
    let seen = space.look_at_all().await;
    assert!(pods[..2].iter().all(|name| seen.is_ready(name)));
    // With none idle a busy one is chosen, and waits.
    space.scale(1).await;
    space.requests.request(&space.key(&pods[0]), None, &delete).await.unwrap();
    for _ in 0..5 {
        assert!(space.look_at_all().await.is_ready(&pods[0]), "a busy pod left service");
    }
    space.busy(&pods[0], false).await;
    space.until("it goes when it is done", |seen| seen.is_terminating(&pods[0])).await;
}
