//! Which owners are watched, which pods are missing, and what happens to operations that wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use podward_core::keys::{SERVICE_AVAILABLE, SERVICE_READY_GATE};
use serde_json::{Value, json};

use super::super::state::{GoneOwners, OWNER_RECHECK_DELAY, ObservedPod};
use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};

/// Returns the pod `name` of the ReplicaSet `owner`.
fn of_owner(name: &str, owner: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["labels"]["part"] = json!(owner);
    (object["metadata"]["ownerReferences"][0]["name"], object["metadata"]["ownerReferences"][0]["uid"]) =
        (json!(owner), json!(owner));
    object
}

/// Returns `object` while it is being deleted, out of service.
fn terminating(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["labels"].as_object_mut().unwrap().remove(SERVICE_AVAILABLE);
    object
}

/// Creates the pod `name`, which its own ReplicaSet `owner` and the rule set `owner` with a budget of 1 select.
fn pod_of_owner(server: &ApiServer, name: &str, owner: &str) {
    server.store(Kind::Pods, of_owner(name, owner), None).unwrap();
    let mut spec = budget(json!(1));
    spec["selector"]["matchLabels"] = json!({"part": owner});
    server.rule(owner, spec);
}

#[tokio::test]
async fn an_owner_is_watched_only_while_an_operation_waits() {
    let server = ApiServer::new();
    pod_of_owner(&server, "web-0", "a");
    pod_of_owner(&server, "web-1", "b");
    server.scale_owner("a", 2);
    server.scale_owner("b", 1);
    let mut leader = Leader::start(&server, "one");
    let watched = |leader: &Leader| leader.rules.context.owners.watched();
    server.begin("web-0");
    leader
        .until("a replica of a is missing", |leader| {
            leader.reconcile("web-0").contains("[missing replicas]=1")
        })
        .await;
    assert_eq!(watched(&leader), ["a"]);
    server.begin("web-1");
    leader.until("the pod of b goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.until("b does not count any more, and a does", |leader| watched(leader) == ["a"]).await;
    server.scale_owner("a", 1);
    leader.until("the pod of a goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.until("no owner counts", |leader| watched(leader).is_empty()).await;
    leader.end().await;
}

/// The API server accepts any name in an owner reference.
#[tokio::test]
async fn an_owner_with_an_impossible_name_stops_nobody() {
    let server = ApiServer::new();
    pod_of_owner(&server, "web-0", "a");
    let mut other = of_owner("web-1", "b");
    other["metadata"]["ownerReferences"][0]["name"] = json!("my web");
    server.store(Kind::Pods, other, None).unwrap();
    let mut spec = budget(json!(1));
    spec["selector"]["matchLabels"] = json!({"part": "b"});
    server.rule("b", spec);
    server.scale_owner("a", 1);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-1");
    server.begin("web-0");
    for pod in ["web-0", "web-1"] {
        leader.until("the pod goes", |leader| is_out(&leader.server, pod)).await;
    }
    leader.end().await;
}

/// Another namespace has all watches.
#[tokio::test]
async fn an_operation_that_waits_for_an_owner_that_is_not_watched_is_tried_again() {
    let server = ApiServer::new();
    server.pods(4, 5);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    for number in 0..200 {
        let owner = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("other-{number}"), "uid": number.to_string(),
        }));
        leader.rules.context.owners.wanted("other", &owner.unwrap()).await.unwrap();
    }
    server.begin("web-0");
    leader
        .until("one replica is missing", |leader| leader.reconcile("web-0").contains("[missing replicas]=1"))
        .await;
    let owners = leader.rules.context.owners.watched();
    assert_eq!((owners.len(), owners.contains(&"web".to_owned())), (200, false));
    let mut quiet = 0;
    leader
        .until("nothing is left to decide", |leader| {
            quiet = if is_quiet(leader) { quiet + 1 } else { 0 };
            quiet == 20
        })
        .await;
    server.scale(4);
    leader.until("it isn't missing any more", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// Creates the pods web-0, which is being deleted, and web-1, which begins an operation. A rule set with a budget of 1
/// selects both, and each is the only pod of its owner.
async fn begin_beside(server: &ApiServer, other: Value) -> Leader {
    server.store(Kind::Pods, other, None).unwrap();
    server.store(Kind::Pods, of_owner("web-1", "b"), None).unwrap();
    server.scale_owner("a", 1);
    server.scale_owner("b", 1);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(server, "one");
    server.begin("web-1");
    leader.until("a pod is missing", waits_for_missing).await;
    leader
}

/// True if nothing is left to decide.
fn is_quiet(leader: &Leader) -> bool {
    leader.rules.context.cache.lock().namespaces["shop"].changed_sets == Default::default()
}

fn waits_for_missing(leader: &mut Leader) -> bool {
    assert!(!is_out(&leader.server, "web-1"));
    leader.reconcile("web-1").contains("[missing replicas]=1")
}

/// Each shard of a database is a StatefulSet with one pod. Only one shard may be out of service.
#[tokio::test]
async fn the_only_pod_of_an_owner_counts_until_its_replacement_is_in_service() {
    let server = ApiServer::new();
    let mut leader = begin_beside(&server, terminating(of_owner("web-0", "a"))).await;
    // The kubelet reports that the containers have ended before the pod is gone.
    let mut ended = terminating(of_owner("web-0", "a"));
    ended["metadata"]["uid"] = server.get(Kind::Pods, "web-0").unwrap()["metadata"]["uid"].clone();
    ended["status"]["phase"] = json!("Succeeded");
    server.store(Kind::Pods, ended, None).unwrap();
    leader.follow();
    let mut quiet = 0;
    leader
        .until("that is decided about", |leader| {
            assert!(waits_for_missing(leader));
            quiet = if is_quiet(leader) { quiet + 1 } else { 0 };
            quiet == 20
        })
        .await;
    server.delete(Kind::Pods, "web-0");
    let mut replacement = of_owner("web-0", "a");
    replacement["metadata"]["labels"].as_object_mut().unwrap().remove(SERVICE_AVAILABLE);
    replacement["status"]["conditions"] = json!([
        {"type": SERVICE_READY_GATE, "status": "True"}, {"type": "Ready", "status": "False"},
        {"type": "ContainersReady", "status": "False"},
    ]);
    server.store(Kind::Pods, replacement, None).unwrap();
    leader
        .until("the replacement counts", |leader| {
            assert!(!is_out(&leader.server, "web-1"));
            let message = leader.reconcile("web-1");
            message.contains("[current unavailable]=1/2") && !message.contains("missing")
        })
        .await;
    server.finish("web-0");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.end().await;
}

#[tokio::test]
async fn the_last_pod_of_an_owner_that_wants_none_does_not_count() {
    let server = ApiServer::new();
    let mut leader = begin_beside(&server, terminating(of_owner("web-0", "a"))).await;
    server.scale_owner("a", 0);
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.end().await;
}

/// Its next pod may not be opted in. An operation must not wait for it for ever.
#[tokio::test]
async fn an_owner_without_pods_is_forgotten() {
    let server = ApiServer::new();
    let mut leader = begin_beside(&server, terminating(of_owner("web-0", "a"))).await;
    server.delete(Kind::Pods, "web-0");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.until("no owner counts", |leader| leader.rules.context.owners.watched().is_empty()).await;
    leader.end().await;
}

#[tokio::test]
async fn a_pod_without_an_owner_counts_until_it_is_gone() {
    let server = ApiServer::new();
    let mut alone = terminating(of_owner("web-0", "a"));
    alone["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    alone["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now() + Duration::from_secs(3600));
    let mut leader = begin_beside(&server, alone).await;
    server.delete(Kind::Pods, "web-0");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.end().await;
}

/// Its node is lost: nobody says that it has ended.
#[tokio::test]
async fn a_pod_without_an_owner_does_not_count_when_it_should_have_ended() {
    let server = ApiServer::new();
    let mut lost = terminating(of_owner("web-0", "a"));
    lost["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let ends = jiff::Timestamp::now() + Duration::from_secs(2);
    lost["metadata"]["deletionTimestamp"] = json!(ends);
    let mut leader = begin_beside(&server, lost).await;
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-1")).await;
    assert!(jiff::Timestamp::now() > ends);
    leader.end().await;
}

#[test]
fn an_owner_counts_for_a_while_after_the_first_decision_without_its_pod() {
    let observed = |object: Value, sets: &[&str]| ObservedPod {
        pod: Arc::new(serde_json::from_value(object).unwrap()),
        requests: Vec::new(),
        skipped: Arc::default(),
        ends_workload: false,
        sets: sets.iter().map(|set| (*set).to_owned()).collect(),
    };
    let mut finished = of_owner("web-2", "c");
    finished["status"]["phase"] = json!("Succeeded");
    let mut owners = GoneOwners::default();
    owners.add(&observed(terminating(of_owner("web-0", "a")), &["web"]));
    owners.add(&observed(of_owner("web-1", "b"), &[]));
    owners.add(&observed(finished, &["web"]));
    let mut counting = |now| {
        let counting = owners.counting(now);
        counting.map(|gone| (gone.owner.uid.clone(), gone.sets.clone())).collect::<Vec<_>>()
    };
    let begin = Instant::now();
    let only = [("a".to_owned(), ["web".to_owned()].into())];
    assert_eq!(counting(begin), only);
    assert_eq!(counting(begin + OWNER_RECHECK_DELAY / 2), only, "also in another decision");
    assert_eq!(counting(begin + OWNER_RECHECK_DELAY), [], "and not for ever");
    assert_eq!(counting(begin), []);
}
