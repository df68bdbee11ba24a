//! Owners that have pods that are not opted in.

use std::sync::Arc;
use std::time::Duration;

use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE, SERVICE_READY_GATE};
use podward_kube_util::CachedPod;
use serde_json::{Value, json};

use super::super::worker::OutsidePods;
use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};

/// Returns a pod of the ReplicaSet `web` that is not opted in and is Ready.
fn outside(name: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "web"});
    object["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    object
}

fn store(server: &ApiServer, object: Value) {
    server.store(Kind::Pods, object, None).unwrap();
}

/// As with a partition of a StatefulSet: one of four pods is opted in.
#[tokio::test]
async fn pods_that_are_not_opted_in_are_not_missing() {
    for (name, limit) in [("maxUnavailableValue", json!(1)), ("minAvailableValue", json!("50%"))] {
        let server = ApiServer::new();
        server.pods(1, 4);
        ["old-1", "old-2", "old-3"].iter().for_each(|name| store(&server, outside(name)));
        let mut spec = budget(json!(1));
        spec["rules"][0]["availablePolicy"] = json!({name: limit});
        server.rule("web", spec);
        let mut leader = Leader::start(&server, "one");
        server.begin("web-0");
        leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
        leader.end().await;
    }
}

/// They may be the pods that the budget waits for.
#[tokio::test]
async fn pods_that_are_neither_opted_in_nor_in_service_are_missing() {
    let server = ApiServer::new();
    server.pods(1, 4);
    let mut late = outside("old-1");
    late["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    let mut leaving = outside("old-2");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut ended = outside("old-3");
    ended["status"]["phase"] = json!("Failed");
    let mut other = outside("old-4");
    other["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    [late, leaving, ended, other].into_iter().for_each(|object| store(&server, object));
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let waits_for = |leader: &mut Leader, missing: &str| {
        assert!(!is_out(&leader.server, "web-0"));
        leader.reconcile("web-0").contains(&format!("[missing replicas]={missing}"))
    };
    leader.until("none of them counts", |leader| waits_for(leader, "3")).await;
    // The pods are not watched, and so are listed again after a while.
    ["old-1", "old-2"].iter().for_each(|name| store(&server, outside(name)));
    leader.until("two of them count", |leader| waits_for(leader, "1")).await;
    store(&server, outside("old-3"));
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// A decision needs the pods of all owners at the same time.
#[tokio::test]
async fn the_pods_of_all_owners_are_listed_for_a_decision() {
    let server = ApiServer::new();
    let of_owner = |mut object: Value, owner: &str| {
        let reference = &mut object["metadata"]["ownerReferences"][0];
        (reference["name"], reference["uid"]) = (json!(owner), json!(owner));
        store(&server, object);
    };
    for owner in ["a", "b"] {
        server.scale_owner(owner, 4);
        of_owner(pod(&format!("{owner}-0")), owner);
        (1..4).for_each(|number| of_owner(outside(&format!("{owner}-{number}")), owner));
    }
    server.rule("web", budget(json!(1)));
    server.delay_outside_lists(Duration::from_millis(150));
    let mut leader = Leader::start(&server, "one");
    for pod in ["a-0", "b-0", "a-0", "b-0"] {
        server.begin(pod);
        leader.until("the pod goes", |leader| is_out(&leader.server, pod)).await;
        server.finish(pod);
        leader.until("it is back", |leader| !is_out(&leader.server, pod)).await;
    }
    leader.end().await;
}

#[tokio::test]
async fn a_pod_that_leaves_service_during_a_list_counts() {
    let server = ApiServer::new();
    server.pods(2, 4);
    ["old-1", "old-2"].iter().for_each(|name| store(&server, outside(name)));
    server.rule("web", budget(json!(1)));
    server.delay_outside_lists(Duration::from_millis(500));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    let mut ended = server.get(Kind::Pods, "web-1").unwrap();
    ended["metadata"]["labels"].as_object_mut().unwrap().remove(SERVICE_AVAILABLE);
    ended["status"]["conditions"] =
        json!([{"type": SERVICE_READY_GATE, "status": "True"}, {"type": "Ready", "status": "False"}]);
    store(&server, ended);
    leader
        .until("it counts", |leader| {
            let (first, other) = (is_out(&leader.server, "web-0"), "blocked by max unavailable policy");
            assert!(!first, "two pods are out of service");
            leader.reconcile("web-0").contains(other)
        })
        .await;
    leader.end().await;
}

#[tokio::test]
async fn pods_are_not_listed_while_none_is_missing() {
    let server = ApiServer::new();
    server.pods(2, 2);
    store(&server, outside("old-1"));
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    (0..2).for_each(|number| server.begin(&format!("web-{number}")));
    leader.until("one is out", |leader| leader.server.out(2).len() == 1).await;
    leader
        .until("the other waits", |leader| leader.server.status_writes().last().unwrap()["waitingCount"] == 1)
        .await;
    assert_eq!(server.outside_lists(), 0);
    leader.end().await;
}

/// Its label has just been removed, and the watch has not delivered that. Where no pod was found, the list is not
/// repeated at once.
#[tokio::test]
async fn a_pod_is_not_counted_twice() {
    let server = ApiServer::new();
    store(&server, pod("web-0"));
    let cached = server.get(Kind::Pods, "web-0").unwrap();
    server.label("web-0", CONTROL_LABEL, "false");
    assert!(server.labels("web-0").contains_key(SERVICE_AVAILABLE));
    store(&server, outside("old-1"));
    let known: Vec<Arc<CachedPod>> = vec![Arc::new(serde_json::from_value(cached.clone()).unwrap())];
    let owner = serde_json::from_value(cached["metadata"]["ownerReferences"][0].clone()).unwrap();
    let pods = OutsidePods::new(server.client());
    let counted =
        async |pods: &OutsidePods| pods.ready("shop", &owner, Some("app=web"), &known, 4).await.unwrap();
    assert_eq!(counted(&pods).await.pods, 1);
    assert_eq!(server.outside_lists(), 1);
    let empty = ApiServer::new();
    let pods = OutsidePods::new(empty.client());
    for _ in 0..3 {
        assert_eq!(counted(&pods).await.pods, 0);
    }
    assert_eq!(empty.outside_lists(), 1);
}
