//! Owners that have pods that are not opted in.

use std::time::{Duration, Instant};

use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE, SERVICE_READY_GATE};
use serde_json::{Value, json};

use super::super::state::{ChangedSets, OWNER_RECHECK_DELAY};
use super::super::worker::{OutsidePods, OwnerToList};
use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};

/// Returns a pod of the ReplicaSet `web` that is not opted in and is Ready.
pub(super) fn outside(name: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "web"});
    object["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    object
}

/// Returns the pod as it is when it is not available.
fn out_of_service(mut object: Value) -> Value {
    object["metadata"]["labels"].as_object_mut().unwrap().remove(SERVICE_AVAILABLE);
    object["status"]["conditions"] =
        json!([{"type": SERVICE_READY_GATE, "status": "True"}, {"type": "Ready", "status": "False"}]);
    object
}

pub(super) fn store(server: &ApiServer, object: Value) {
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
    store(&server, out_of_service(server.get(Kind::Pods, "web-1").unwrap()));
    leader
        .until("it counts", |leader| {
            let (first, other) = (is_out(&leader.server, "web-0"), "blocked by max unavailable policy");
            assert!(!first, "two pods are out of service");
            leader.reconcile("web-0").contains(other)
        })
        .await;
    leader.end().await;
}

/// The list contains the old pod, and the owner now has the new one.
#[tokio::test]
async fn a_pod_that_is_replaced_by_one_that_is_opted_in_during_a_list_is_not_counted_twice() {
    let server = ApiServer::new();
    server.pods(2, 5);
    ["old-2", "old-3"].iter().for_each(|name| store(&server, outside(name)));
    server.rule("web", budget(json!(2)));
    server.delay_outside_lists(Duration::from_millis(500));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    server.delete(Kind::Pods, "old-3");
    store(&server, out_of_service(pod("web-3")));
    leader
        .until("both count", |leader| {
            assert!(!is_out(&leader.server, "web-0"), "three pods are out of service");
            leader.reconcile("web-0").contains("[missing replicas]=1")
        })
        .await;
    store(&server, outside("old-4"));
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

#[tokio::test]
async fn pods_are_listed_again_as_soon_as_a_list_that_found_none_is_old_enough() {
    let server = ApiServer::new();
    server.pods(1, 2);
    server.rule("web", budget(json!(1)));
    server.delay_outside_lists(Duration::from_millis(100));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() == 1).await;
    let listed = Instant::now();
    store(&server, outside("old-1"));
    leader.until("they are listed again", |leader| leader.server.outside_lists() == 2).await;
    assert!(
        listed.elapsed() < 2 * OWNER_RECHECK_DELAY - Duration::from_millis(300),
        "{:?}",
        listed.elapsed()
    );
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// Creates a rule object for pods with the label `b`, which refuses those without the label `ready`.
pub(super) fn label_check(server: &ApiServer) {
    let check = json!({"requires": {"matchLabels": {"ready": "yes"}}});
    let rules = json!([{"name": "ready", "labelCheck": check}]);
    server.rule("b", json!({"selector": {"matchLabels": {"b": "yes"}}, "rules": rules}));
}

/// Creates a pod without an owner, and a rule object with a budget for it alone.
pub(super) fn unrelated_pod(server: &ApiServer) {
    let mut alone = pod("alone");
    alone["metadata"]["labels"]["app"] = json!("other");
    alone["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    store(server, alone);
    let mut spec = budget(json!(1));
    spec["selector"] = json!({"matchLabels": {"app": "other"}});
    server.rule("other", spec);
}

/// Waits until the rule objects `a` and `b` are stored and nothing is left to decide.
async fn until_quiet(leader: &mut Leader) {
    leader.until("both statuses are written", |leader| leader.server.status_writes().len() >= 2).await;
    leader.server.rules_followed().await;
    leader
        .until("nothing is left to decide", |leader| {
            let cache = leader.rules.context.cache.lock();
            cache.namespaces["shop"].changed_sets == ChangedSets::default()
        })
        .await;
}

#[tokio::test]
async fn a_list_of_pods_does_not_stop_the_other_rules_of_the_namespace() {
    let server = ApiServer::new();
    server.pods(1, 2);
    store(&server, outside("old-1"));
    unrelated_pod(&server);
    server.rule("web", budget(json!(1)));
    server.hold_outside_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    server.begin("alone");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "alone")).await;
    assert!(!is_out(&server, "web-0"));
    server.hold_outside_lists(false);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

#[tokio::test]
async fn the_pause_after_a_list_does_not_stop_the_other_rules_of_the_namespace() {
    let server = ApiServer::new();
    server.pods(1, 3);
    store(&server, outside("old-1"));
    unrelated_pod(&server);
    server.rule("web", budget(json!(1)));
    server.delay_outside_lists(Duration::from_secs(1));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let refused = |leader: &mut Leader| leader.reconcile("web-0").contains("[missing replicas]=1");
    leader.until("a pod is missing", refused).await;
    server.begin("alone");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "alone")).await;
    assert_eq!(server.outside_lists(), 1, "the pause is not over");
    leader.until("they are listed again", |leader| leader.server.outside_lists() == 2).await;
    leader.end().await;
}

/// It begins to wait for both rule objects while pods are listed for a decision about one of them.
#[tokio::test]
async fn a_pod_that_another_rule_refuses_gets_no_room_after_a_list() {
    let server = ApiServer::new();
    server.pods(2, 4);
    ["old-2", "old-3"].iter().for_each(|name| store(&server, outside(name)));
    server.label("web-1", "b", "yes");
    server.rule("a", budget(json!(2)));
    label_check(&server);
    let mut leader = Leader::start(&server, "one");
    until_quiet(&mut leader).await;
    server.hold_outside_lists(true);
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    server.begin("web-1");
    leader.until("it waits", |leader| leader.reconcile("web-1").contains("waits for its turn")).await;
    server.hold_outside_lists(false);
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.until("it is refused", |leader| refuses_web_1(leader)).await;
    assert!(!has_grant(&server, "web-1"), "{:?}", server.status_writes());
    leader.end().await;
}

/// The same, while the pods are read after the grants of another controller.
#[tokio::test]
async fn a_pod_that_another_rule_refuses_gets_no_room_after_the_pods_are_read() {
    let server = ApiServer::new();
    server.pods(2, 2);
    server.label("web-1", "b", "yes");
    server.rule("a", budget(json!(2)));
    label_check(&server);
    let mut leader = Leader::start(&server, "one");
    until_quiet(&mut leader).await;
    let mut rule = server.get(Kind::Rules, "a").unwrap();
    rule["status"]["holder"] = json!("zero");
    let lists = server.pod_lists();
    server.delay_pod_lists(Duration::from_secs(1));
    server.store(Kind::Rules, rule, None).unwrap();
    server.rules_followed().await;
    server.begin("web-0");
    leader.until("the pods are read", |leader| leader.server.pod_lists() > lists).await;
    server.begin("web-1");
    leader.until("it waits", |leader| leader.reconcile("web-1").contains("waits for its turn")).await;
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.until("it is refused", |leader| refuses_web_1(leader)).await;
    assert!(!has_grant(&server, "web-1"), "{:?}", server.status_writes());
    leader.end().await;
}

/// True if the status of the budget, which selects both pods, reports that web-1 waits.
fn refuses_web_1(leader: &Leader) -> bool {
    leader.server.status_writes().iter().any(|status| {
        let details = status["details"].as_array().into_iter().flatten();
        details.into_iter().any(|detail| {
            detail["name"] == "web-1" && detail["rejectInfo"].as_array().is_some_and(|info| !info.is_empty())
        })
    })
}

/// True if a status that was written contains room for the pod.
fn has_grant(server: &ApiServer, name: &str) -> bool {
    let has = |status: &Value| {
        status["grants"].as_array().is_some_and(|grants| grants.iter().any(|grant| grant["pod"] == name))
    };
    server.status_writes().iter().any(has)
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
    let list = OwnerToList {
        owner: serde_json::from_value(cached["metadata"]["ownerReferences"][0].clone()).unwrap(),
        selector: Some("app=web".to_owned()),
        known: [cached["metadata"]["uid"].as_str().unwrap().to_owned()].into(),
        most: 4,
    };
    let pods = OutsidePods::new(server.client());
    assert_eq!(pods.ready("shop", &list).await.unwrap(), 1);
    assert_eq!(pods.none_until("web"), None);
    let pods = OutsidePods::new(ApiServer::new().client());
    assert_eq!(pods.ready("shop", &list).await.unwrap(), 0);
    assert!(pods.none_until("web").is_some());
}
